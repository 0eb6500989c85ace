package version

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Query checks whether a version is in ranges.
type Query struct {
	release     release
	version     string
	module      string // module and stream of an rpm, such as php:8.1; "" if there is none, or if it is unknown
	rule        Rule
	key, semver Key // "" if the rule cannot order the version
}

// NewQuery returns a Query for a version of an ecosystem. It returns fault.InvalidArgument if the ecosystem's
// rule cannot order the version. The ecosystem may be unknown, because lists of versions and SEMVER ranges do
// not need its rule.
func NewQuery(ecosystem, version string) (Query, error) {
	return NewPackageQuery(ecosystem, "", version)
}

// NewPackageQuery is like NewQuery for a package with a package URL, whose type decides how the versions of an unknown
// ecosystem are ordered.
func NewPackageQuery(ecosystem, purl, version string) (Query, error) {
	q := Query{release: releaseOf(ecosystem), version: version, module: moduleOf(purl)}
	rule, ok := RuleFor(ecosystem, purl)
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

// In reports whether a contains the version. It returns false if a has another ecosystem, another release or another
// product stream, as SameEcosystem defines it. In does not compare the names of packages.
func (q Query) In(a vuln.Affected) (bool, error) {
	if !q.release.same(releaseOf(a.Ecosystem)) {
		return false, nil
	}
	if slices.Contains(a.Versions, q.version) {
		return true, nil
	}
	rule, key := q.rule, q.key
	if rule.read == nil {
		if r, ok := RuleFor(a.Ecosystem, a.PURL); ok {
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
		if r.Type != "GIT" && len(r.Events) == 1 && r.Events[0].Introduced == "0" { // the range contains every version
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

// Affects reports whether an advisory affects the version of a package with this name. A withdrawn advisory, and an
// advisory whose latest event is a false positive, affect no version. A version is not affected by a range that it
// cannot be compared with.
func (q Query) Affects(a vuln.Advisory, name string) bool {
	if latest := a.Latest(); !a.DeleteTime.IsZero() || latest != nil && latest.Type == vuln.EventFalsePositive {
		return false
	}
	return slices.ContainsFunc(a.Affected, func(p vuln.Affected) bool {
		if p.Name != name || !q.sameStream(a, p) {
			return false
		}
		in, err := q.In(p)
		return err == nil && in
	})
}

// Fixed returns the versions of a package that an advisory names as fixed. If ecosystem contains the release of a
// distribution, only the versions for that release are returned.
func Fixed(a vuln.Advisory, ecosystem, name string) (fixed []string) {
	for _, v := range a.Affected {
		if v.Name != name || !SameEcosystem(ecosystem, v.Ecosystem) {
			continue
		}
		for _, r := range v.Ranges {
			for _, e := range r.Events {
				if e.Fixed != "" && r.Type != "GIT" && !slices.Contains(fixed, e.Fixed) {
					fixed = append(fixed, e.Fixed)
				}
			}
		}
	}
	return fixed
}

// onList reports whether a list contains the version in another spelling, such as
// 1.0.0 for 1.0. It is only needed if there are no ranges.
func onList(rule Rule, versions []string, k Key) bool {
	var buf [96]byte
	for _, v := range versions {
		if listed, err := rule.append(buf[:0], v); err == nil && string(listed) == string(k) {
			return true
		}
	}
	return false
}

// contains reports whether a range contains the version with key v: whether the last
// event up to v introduced the vulnerability.
func contains(rule Rule, events []vuln.RangeEvent, v Key) (bool, error) {
	const usual = 80 // size of most keys in bytes; a longer key needs an allocation
	room := make(key, 3*usual)
	buf, in, gone := room[:0:usual], room[usual:usual:2*usual], room[2*usual:2*usual]
	introduced, limited, within := false, false, false
	for _, e := range events {
		text, kind := split(e)
		k, err := boundKey(rule, buf, text, kind)
		if err != nil {
			return false, err
		}
		before, equal := string(k) < string(v), string(k) == string(v) // these conversions do not copy k
		switch {
		case kind == opens && (before || equal) && bytes.Compare(k, in) >= 0:
			in, introduced = append(in[:0], k...), true
		case kind == fixes && (before || equal) && bytes.Compare(k, gone) > 0:
			gone = append(gone[:0], k...)
		case kind == ends && before && bytes.Compare(k, gone) >= 0:
			// The vulnerability ends right after the last affected version, which may be the version that introduced
			// it. The key with this additional byte sorts there, and no version has such a key.
			gone = append(append(gone[:0], k...), 0)
		case kind == limits:
			limited, within = true, within || !before && !equal
		}
	}
	return introduced && bytes.Compare(in, gone) >= 0 && (within || !limited), nil
}

// A bound is the kind of an event in a range. Events at the same version are ordered by their kind.
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

// boundKey returns the key of a bound. "Introduced in 0" sorts before all versions, and the limit "*" sorts after them.
func boundKey(rule Rule, buf key, text string, kind bound) (key, error) {
	if kind == opens && text == "0" {
		return buf, nil
	}
	if kind == limits && text == "*" {
		return append(buf, 0xff), nil // sorts after all keys, because no key starts with this byte
	}
	return rule.append(buf, text)
}

// CheckRanges returns fault.InvalidArgument for ranges that contradict themselves, because nothing is introduced, or
// because the fix precedes the introduction. It returns the same fault for bounds that the rule of the ecosystem cannot
// order. It does not check ranges of commits or of unknown ecosystems.
func CheckRanges(a vuln.Affected) error {
	for _, r := range a.Ranges {
		if !slices.ContainsFunc(r.Events, func(e vuln.RangeEvent) bool { return e.Introduced != "" }) {
			return fault.Field("affected.ranges", "a range of %s has no introduced version", a.Name)
		}
		rule, ok := RuleFor(a.Ecosystem, a.PURL)
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
// because each branch may have its own fix.
func walk(points []point) error {
	open, ever := false, false
	idle := Key("\xff") // key of the last fix that followed no introduction; initially a key that no version has
	for _, p := range points {
		switch {
		case p.kind == opens && p.key == idle:
			return fmt.Errorf("introduced and fixed in %s", p.text)
		case p.kind == opens:
			open, ever = true, true
		case p.kind == ends && !open:
			return fmt.Errorf("last affected in %s, where it was not introduced", p.text)
		case !ever:
			return fmt.Errorf("ends in %s, before it was introduced", p.text)
		case p.kind == fixes && !open:
			idle = p.key
		case p.kind != limits:
			open = false
		}
	}
	return nil
}
