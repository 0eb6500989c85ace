package vuln

import "slices"

// Current returns the advisory with the versions that are affected according to its latest approved event.
//
// A fix in the ranges is valid until the advisory is re-opened: until a detection, or another event that confirms the
// vulnerability, follows a fix or a false positive. From then on the versions before and after the fix are affected,
// until another event names a fixed version. The stored ranges are the source's ranges, so every answer about affected
// versions must use Current.
func (a Advisory) Current() Advisory {
	if !a.Reopened() {
		return a
	}
	latest := a.Latest()
	fixed := latest.FixedVersions()
	if latest.Closes() && (len(fixed) == 0 || a.fixedIn(fixed)) {
		return a // the latest event is a false positive, or the ranges already contain its fix
	}
	affected := slices.Clone(a.Affected)
	for i, v := range affected {
		affected[i].Ranges = reopen(v, nil)
		if v.Name == a.ArtifactName { // events name versions of the artifact, not of other packages
			affected[i].Ranges = reopen(v, fixed)
		}
	}
	a.Affected = affected
	return a
}

// reopen returns the ranges of a package, in which fixed replaces the earlier fixes. After a false positive, a package
// may have neither ranges nor versions. It then gets a range with all versions.
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

// Reopened reports whether an approved event confirms the vulnerability after an earlier approved event closed it.
func (a Advisory) Reopened() bool {
	closed := false
	for _, e := range a.Events { // events are ordered from the oldest to the newest
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

// Closes reports whether the artifact is not vulnerable after the event, because of a fix or a false positive.
func (e AdvisoryEvent) Closes() bool {
	return e.Type == EventFixed || e.Type == EventPatched || e.Type == EventFalsePositive
}

// FixedVersions returns the versions that the event names as fixed.
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
