package finding

import (
	"cmp"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// Claims returns, for each advisory of a finding, the names by which an exception can select it. These are the names of
// the advisory, and the names of all advisories that share a name with it and are in its group or in a group above.
// Advisories of other groups do not count. Otherwise an author in a folder could extend an exception to an advisory of
// the organization, by writing an advisory that names both. Equal lists of names are returned once.
func Claims(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (claims [][]string) {
	var groups []resource.UID
	for _, h := range hits {
		groups = append(groups, advisories[h.Advisory].UID.Parent())
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		above := slices.DeleteFunc(slices.Clone(hits), func(h findingdb.Hit) bool {
			return !advisories[h.Advisory].UID.Parent().Covers(g)
		})
		for _, aliases := range GroupByAlias(above, advisories) {
			var called []string
			isOwn := false
			for _, h := range aliases {
				a := advisories[h.Advisory]
				called = append(called, AdvisoryNames(a)...)
				isOwn = isOwn || a.UID.Parent() == g
			}
			if isOwn {
				slices.Sort(called)
				claims = append(claims, slices.Compact(called))
			}
		}
	}
	return claims
}

// AdvisoryNames returns the ID, the aliases and the legacy ID of an advisory.
func AdvisoryNames(a vuln.Advisory) []string {
	names := append([]string{a.ID}, a.Aliases...)
	if a.LegacyID != "" {
		names = append(names, a.LegacyID)
	}
	return names
}

// GroupByAlias groups hits of one package whose advisories share a name, directly or
// through other advisories among the hits. It sorts hits.
func GroupByAlias(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (groups [][]findingdb.Hit) {
	slices.SortFunc(hits, func(a, b findingdb.Hit) int {
		return cmp.Or(cmp.Compare(advisories[a.Advisory].ID, advisories[b.Advisory].ID), cmp.Compare(a.Advisory, b.Advisory))
	})
	group := map[string]int{} // index of a group in groups, by the name of an advisory
	for _, h := range hits {
		into := -1
		for _, name := range AdvisoryNames(advisories[h.Advisory]) {
			pos, ok := group[name]
			switch {
			case !ok:
			case into < 0:
				into = pos
			case pos != into: // this advisory has names in two groups, so it joins them
				groups[into], groups[pos] = append(groups[into], groups[pos]...), nil
				for n, g := range group {
					if g == pos {
						group[n] = into
					}
				}
			}
		}
		if into < 0 {
			into, groups = len(groups), append(groups, nil)
		}
		groups[into] = append(groups[into], h)
		for _, name := range AdvisoryNames(advisories[h.Advisory]) {
			group[name] = into
		}
	}
	return slices.DeleteFunc(groups, func(g []findingdb.Hit) bool { return g == nil })
}
