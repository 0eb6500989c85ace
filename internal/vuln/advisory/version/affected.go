package version

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Query checks whether a version is in ranges.
type Query struct {
	ecosystem, version string
	rule               Rule
	key, semver        Key // "" if the version has none
}

// NewQuery returns a Query for a version of an ecosystem. It returns fault.InvalidArgument if the ecosystem's
// rule cannot order the version. The ecosystem may be unknown, because lists of versions and SEMVER ranges do
// not need its rule.
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

// In reports whether a contains the version. It does not if a has another ecosystem or another release of it;
// an ecosystem without a release means all its releases. In does not compare the names of packages.
func (q Query) In(a vuln.Affected) (bool, error) {
	if !SameEcosystem(q.ecosystem, a.Ecosystem) {
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
		if r.Type != "GIT" && len(r.Events) == 1 && r.Events[0].Introduced == "0" { // every version
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

// Affects reports whether an advisory is about the version of a package with this name. One
// that is withdrawn is not, nor one whose latest event is a false positive. A range that
// the version cannot be compared with does not affect it.
func (q Query) Affects(a vuln.Advisory, name string) bool {
	if latest := a.Latest(); !a.DeleteTime.IsZero() || latest != nil && latest.Type == vuln.EventFalsePositive {
		return false
	}
	return slices.ContainsFunc(a.Affected, func(p vuln.Affected) bool {
		if p.Name != name {
			return false
		}
		in, err := q.In(p)
		return err == nil && in
	})
}

// Fixed returns the versions of a package in which a vulnerability is fixed. Of a
// distribution, those of its release.
func Fixed(a vuln.Advisory, ecosystem, name string) (all []string) {
	for _, v := range a.Affected {
		if v.Name != name || !SameEcosystem(ecosystem, v.Ecosystem) {
			continue
		}
		for _, r := range v.Ranges {
			for _, e := range r.Events {
				if e.Fixed != "" && r.Type != "GIT" && !slices.Contains(all, e.Fixed) {
					all = append(all, e.Fixed)
				}
			}
		}
	}
	return all
}

// SameEcosystem compares the names of ecosystems, and their releases if both have
// one. The releases 22.04 and 22.04:LTS are the same.
func SameEcosystem(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return strings.HasPrefix(b, a) && (len(a) == len(b) || b[len(a)] == ':')
}

// onList reports whether a list contains the version in another spelling, such as
// 1.0.0 for 1.0. It is not needed if there are ranges.
func onList(rule Rule, versions []string, k Key) bool {
	var buf [96]byte
	for _, v := range versions {
		if other, err := rule.append(buf[:0], v); err == nil && string(other) == string(k) {
			return true
		}
	}
	return false
}

// contains reports whether a range contains the version with key v: whether the last
// event up to v introduced the vulnerability.
func contains(rule Rule, events []vuln.RangeEvent, v Key) (bool, error) {
	const usual = 80 // bytes of a key; longer ones are allocated
	room := make(key, 3*usual)
	buf, in, gone := room[:0:usual], room[usual:usual:2*usual], room[2*usual:2*usual]
	introduced, limited, within := false, false, false
	for _, e := range events {
		text, kind := split(e)
		k, err := boundKey(rule, buf, text, kind)
		if err != nil {
			return false, err
		}
		before, at := string(k) < string(v), string(k) == string(v) // does not copy k
		switch {
		case kind == opens && (before || at) && bytes.Compare(k, in) >= 0:
			in, introduced = append(in[:0], k...), true
		case kind == fixes && (before || at) && bytes.Compare(k, gone) > 0:
			gone = append(gone[:0], k...)
		case kind == ends && before && bytes.Compare(k, gone) >= 0:
			// No key has this additional byte. The vulnerability is gone right after
			// that version, which may be the one that introduced it.
			gone = append(append(gone[:0], k...), 0)
		case kind == limits:
			limited, within = true, within || !before && !at
		}
	}
	return introduced && bytes.Compare(in, gone) >= 0 && (within || !limited), nil
}

// A bound is the kind of an event of a range. Events at the same version are ordered by it.
type bound int

const (
	fixes bound = iota
	limits
	opens
	ends
)

func split(e vuln.RangeEvent) (string, bound) {
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

// boundKey returns the key of a bound. Introduced in 0 is before all versions, and the limit * is after them.
func boundKey(rule Rule, buf key, text string, kind bound) (key, error) {
	if kind == opens && text == "0" {
		return buf, nil
	}
	if kind == limits && text == "*" {
		return append(buf, 0xff), nil // no key starts with that
	}
	return rule.append(buf, text)
}

// CheckRanges returns fault.InvalidArgument for ranges that contradict themselves, because nothing is
// introduced or it is fixed before, and for bounds that the rule of the ecosystem cannot order. It does not
// check ranges of commits or of unknown ecosystems.
func CheckRanges(a vuln.Affected) error {
	for _, r := range a.Ranges {
		if !slices.ContainsFunc(r.Events, func(e vuln.RangeEvent) bool { return e.Introduced != "" }) {
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

func checkRange(rule Rule, events []vuln.RangeEvent) error {
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
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.kind, b.kind))
	})
	return walk(points)
}

// walk checks the sorted bounds of a range. Several fixes may follow one introduction,
// because each branch may have one.
func walk(points []point) error {
	open, ever := false, false
	idle := Key("\xff") // of the last fix that fixed nothing; no introduction has the initial key
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
