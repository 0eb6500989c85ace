package vuln

import "slices"

// Current returns the advisory with the versions that are affected according to its latest approved event.
//
// A fix in the ranges holds until the advisory is re-opened, which is when a detection, or any other event by
// which the vulnerability is there, follows a fix or a false positive. The versions before and after the fix are
// affected then, until another event names the version that fixes it. What is stored is what the source said;
// so every answer about affected versions has to be made from Current.
func (a Advisory) Current() Advisory {
	if !a.Reopened() {
		return a
	}
	latest := a.Latest()
	fixed := latest.FixedVersions()
	if latest.Closes() && (len(fixed) == 0 || a.fixedIn(fixed)) {
		return a // a false positive, or a fix that the ranges have
	}
	all := slices.Clone(a.Affected)
	for i, v := range all {
		all[i].Ranges = reopen(v, nil)
		if v.Name == a.ArtifactName { // the versions in events are those of the artifact
			all[i].Ranges = reopen(v, fixed)
		}
	}
	a.Affected = all
	return a
}

// reopen returns the ranges of a package with other fixes. A package without any version gets a range of all of
// them, as it has after a false positive.
func reopen(v Affected, fixed []string) []AffectedRange {
	ranges := slices.Clone(v.Ranges)
	if len(ranges)+len(v.Versions) == 0 {
		ranges = []AffectedRange{{Type: "ECOSYSTEM", Events: []RangeEvent{{Introduced: "0"}}}}
	}
	for i, r := range ranges {
		r.Events = slices.DeleteFunc(slices.Clone(r.Events), func(e RangeEvent) bool { return e.Fixed != "" })
		for _, s := range fixed {
			if r.Type != "GIT" {
				r.Events = append(r.Events, RangeEvent{Fixed: s})
			}
		}
		ranges[i] = r
	}
	return ranges
}

// Reopened reports whether there is an approved event by which the vulnerability is there after one by which it
// is not.
func (a Advisory) Reopened() bool {
	closed := false
	for _, e := range a.Events { // oldest first
		switch {
		case e.ReviewState != ReviewApproved:
		case e.Closes():
			closed = true
		case closed:
			return true
		}
	}
	return false
}

// Closes reports whether the vulnerability is not, or no longer, there after an event.
func (e AdvisoryEvent) Closes() bool {
	return e.Type == EventFixed || e.Type == EventPatched || e.Type == EventFalsePositive
}

// FixedVersions returns the versions that an event names as fixed.
func (e AdvisoryEvent) FixedVersions() []string {
	switch {
	case e.Type == EventPatched:
		return e.Patched
	case e.Type == EventFixed && e.Fixed != nil && e.Fixed.Version != "":
		return []string{e.Fixed.Version}
	}
	return nil
}

// fixedIn reports whether a range of the advisory ends at one of the versions.
func (a Advisory) fixedIn(versions []string) bool {
	return slices.ContainsFunc(a.Affected, func(v Affected) bool {
		return slices.ContainsFunc(v.Ranges, func(r AffectedRange) bool {
			return slices.ContainsFunc(r.Events, func(e RangeEvent) bool {
				return e.Fixed != "" && slices.Contains(versions, e.Fixed)
			})
		})
	})
}
