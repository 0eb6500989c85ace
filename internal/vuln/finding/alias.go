package finding

import (
	"cmp"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// Claims returns, for each advisory of a finding, the names by which an exception may mean
// it: its own, and those of advisories that share a name with it, as far as they are in its
// group or above it. Otherwise whoever may write advisories in a folder could have an
// exception mean one of the organization, by an advisory that names both. The same names
// are returned once.
func Claims(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (all [][]string) {
	var groups []resource.UID
	for _, h := range hits {
		groups = append(groups, advisories[h.Advisory].UID.Parent())
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		above := slices.DeleteFunc(slices.Clone(hits), func(h findingdb.Hit) bool {
			return !advisories[h.Advisory].UID.Parent().Covers(g)
		})
		for _, same := range GroupByAlias(above, advisories) {
			var called []string
			own := false
			for _, h := range same {
				a := advisories[h.Advisory]
				called = append(called, AdvisoryNames(a)...)
				own = own || a.UID.Parent() == g
			}
			if own {
				slices.Sort(called)
				all = append(all, slices.Compact(called))
			}
		}
	}
	return all
}

// AdvisoryNames returns what an advisory is called.
func AdvisoryNames(a vuln.Advisory) []string {
	all := append([]string{a.ID}, a.Aliases...)
	if a.LegacyID != "" {
		all = append(all, a.LegacyID)
	}
	return all
}

// GroupByAlias groups hits of one package whose advisories share a name, over others if need
// be.
func GroupByAlias(hits []findingdb.Hit, advisories map[int64]vuln.Advisory) (all [][]findingdb.Hit) {
	slices.SortFunc(hits, func(a, b findingdb.Hit) int {
		return cmp.Or(cmp.Compare(advisories[a.Advisory].ID, advisories[b.Advisory].ID), cmp.Compare(a.Advisory, b.Advisory))
	})
	group := map[string]int{} // the index in all, by name
	for _, h := range hits {
		into := -1
		for _, name := range AdvisoryNames(advisories[h.Advisory]) {
			at, ok := group[name]
			switch {
			case !ok:
			case into < 0:
				into = at
			case at != into: // this advisory joins two groups
				all[into], all[at] = append(all[into], all[at]...), nil
				for n, g := range group {
					if g == at {
						group[n] = into
					}
				}
			}
		}
		if into < 0 {
			into, all = len(all), append(all, nil)
		}
		all[into] = append(all[into], h)
		for _, name := range AdvisoryNames(advisories[h.Advisory]) {
			group[name] = into
		}
	}
	return slices.DeleteFunc(all, func(of []findingdb.Hit) bool { return of == nil })
}
