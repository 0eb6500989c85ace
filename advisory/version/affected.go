package version

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// Affected tells whether the package's version is in one of its ranges or on
// its list, by the rules of its own ecosystem. It returns
// fault.InvalidArgument for what these rules cannot place.
func Affected(a resource.Affected, version string) (bool, error) {
	q, err := NewQuery(a.Ecosystem, version)
	if err != nil {
		return false, err
	}
	return q.In(a)
}

// A Query is a version to be looked for in many ranges.
type Query struct {
	ecosystem, version string
	rule               Rule
	key, semver        Key // empty where the version has none
}

// NewQuery returns a Query for a version of an ecosystem. It returns
// fault.InvalidArgument if the ecosystem's rule cannot place the version. An
// unknown ecosystem is no mistake: lists of versions and semantic ranges need
// no rule.
func NewQuery(ecosystem, version string) (Query, error) {
	q := Query{ecosystem: ecosystem, version: version}
	rule, ok := Of(ecosystem, "")
	if ok {
		key, err := rule.Key(version)
		if err != nil {
			return Query{}, err
		}
		q.rule, q.key = rule, key
	}
	if rule.name == semver.name {
		q.semver = q.key
		return q, nil
	}
	if key, err := semver.Key(version); err == nil {
		q.semver = key
	}
	return q, nil
}

// In tells whether the version is one of a's. It is not if a is of another
// ecosystem, or of another release of it; without a release, a or the Query
// means all of them. The package's name is for the caller to compare.
func (q Query) In(a resource.Affected) (bool, error) {
	if !sameEcosystem(q.ecosystem, a.Ecosystem) {
		return false, nil
	}
	if slices.Contains(a.Versions, q.version) {
		return true, nil
	}
	rule, key := q.rule, q.key
	if rule.read == nil {
		if r, ok := Of(a.Ecosystem, a.PURL); ok {
			k, err := r.Key(q.version)
			if err != nil {
				return false, err
			}
			rule, key = r, k
		}
	}
	evaluated := false
	for _, r := range a.Ranges {
		rule, key := rule, key
		if r.Type == "SEMVER" {
			rule, key = semver, q.semver
		}
		if r.Type != "GIT" && allVersions(r.Events) {
			return true, nil
		}
		if r.Type == "GIT" || key == "" {
			continue
		}
		evaluated = true
		if in, err := contains(rule, r.Events, key); in || err != nil {
			return in, err
		}
	}
	if evaluated || key == "" {
		return false, nil
	}
	return onList(rule, a.Versions, key), nil
}

// allVersions tells whether a range holds every version, whatever their order.
func allVersions(events []resource.RangeEvent) bool {
	return len(events) == 1 && events[0].Introduced == "0"
}

// sameEcosystem compares the names, and the releases as far as both have one:
// 22.04 and 22.04:LTS are the same.
func sameEcosystem(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return strings.HasPrefix(b, a) && (len(a) == len(b) || b[len(a)] == ':')
}

// onList tells whether another spelling of the version is on a list: 1.0 where
// the list has 1.0.0. Ranges, where there are any, have answered that already.
func onList(rule Rule, versions []string, k Key) bool {
	var buf [96]byte
	for _, v := range versions {
		if other, err := rule.append(buf[:0], v); err == nil && string(other) == string(k) {
			return true
		}
	}
	return false
}

// contains tells whether a range holds the version with key v. The vulnerability
// is there if the last thing that happened up to v is that it was introduced.
func contains(rule Rule, events []resource.RangeEvent, v Key) (bool, error) {
	const usual = 80 // bytes of a key; longer ones find room elsewhere
	room := make(key, 3*usual)
	buf, in, gone := room[:0:usual], room[usual:usual:2*usual], room[2*usual:2*usual]
	introduced, limited, within := false, false, false
	for _, e := range events {
		text, kind := split(e)
		k, err := boundKey(rule, buf, text, kind)
		if err != nil {
			return false, err
		}
		before, at := string(k) < string(v), string(k) == string(v) // in this form, nothing is copied
		switch {
		case kind == opens && (before || at) && bytes.Compare(k, in) >= 0:
			in, introduced = append(in[:0], k...), true
		case kind == fixes && (before || at) && bytes.Compare(k, gone) > 0:
			gone = append(gone[:0], k...)
		case kind == ends && before && bytes.Compare(k, gone) >= 0:
			// One byte more, which no key has: it is gone just after that version,
			// which may also be the one that introduced it.
			gone = append(append(gone[:0], k...), 0)
		case kind == limits:
			limited, within = true, within || !before && !at
		}
	}
	return introduced && bytes.Compare(in, gone) >= 0 && (within || !limited), nil
}

// A bound is what a place in a range means, in the order in which several at the
// same version are read.
type bound int

const (
	fixes bound = iota
	limits
	opens
	ends
)

func split(e resource.RangeEvent) (string, bound) {
	switch {
	case e.Introduced != "":
		return e.Introduced, opens
	case e.Fixed != "":
		return e.Fixed, fixes
	case e.LastAffected != "":
		return e.LastAffected, ends
	}
	return e.Limit, limits
}

// boundKey is the key of a bound. Introduced in 0 is before all versions, and
// limited by * after them.
func boundKey(rule Rule, buf key, text string, kind bound) (key, error) {
	if kind == opens && text == "0" {
		return buf, nil
	}
	if kind == limits && text == "*" {
		return append(buf, 0xff), nil // no key starts with that
	}
	return rule.append(buf, text)
}

// CheckRanges reports ranges that contradict themselves: nothing is introduced,
// or it is gone before. It returns fault.InvalidArgument, also for bounds the
// ecosystem cannot place. Ranges of commits, and of ecosystems whose order is
// not known, are taken as they are.
func CheckRanges(a resource.Affected) error {
	for _, r := range a.Ranges {
		if !slices.ContainsFunc(r.Events, func(e resource.RangeEvent) bool { return e.Introduced != "" }) {
			return fault.Field("affected.ranges", "a range of %s introduces nothing", a.Name)
		}
		rule, ok := Of(a.Ecosystem, a.PURL)
		if r.Type == "SEMVER" {
			rule, ok = semver, true
		}
		if !ok || r.Type == "GIT" {
			continue
		}
		if err := checkRange(rule, r.Events); err != nil {
			return fault.Field("affected.ranges", "%s: %v", a.Name, err)
		}
	}
	return nil
}

// A point is a bound of a range with its key.
type point struct {
	key  Key
	kind bound
	text string
}

func checkRange(rule Rule, events []resource.RangeEvent) error {
	points := make([]point, 0, 8)
	for _, e := range events {
		text, kind := split(e)
		k, err := boundKey(rule, nil, text, kind)
		if err != nil {
			return err
		}
		points = append(points, point{Key(k), kind, text})
	}
	slices.SortFunc(points, func(a, b point) int {
		if c := strings.Compare(string(a.key), string(b.key)); c != 0 {
			return c
		}
		return int(a.kind) - int(b.kind)
	})
	return walk(points)
}

// walk follows a range from its oldest version. Several fixes of one
// introduction are sound: branches have one each.
func walk(points []point) error {
	open, ever := false, false
	idle := Key("\xff") // where the last fix was that fixed nothing; no introduction has that key
	for _, p := range points {
		switch {
		case p.kind == opens && p.key == idle:
			return fmt.Errorf("introduced and fixed in %s", p.text)
		case p.kind == opens:
			open, ever = true, true
		case p.kind == ends && !open:
			return fmt.Errorf("last affected in %s, where it was not introduced", p.text)
		case !ever:
			return fmt.Errorf("gone in %s, before it was introduced", p.text)
		case p.kind == fixes && !open:
			idle = p.key
		case p.kind != limits:
			open = false
		}
	}
	return nil
}
