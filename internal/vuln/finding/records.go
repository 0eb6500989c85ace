package finding

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
)

// Records are records of vulnerabilities by name. They need not be about the packages of the findings.
type Records map[string][]vuln.Advisory

// ReadRecords returns the records in groups that have one of the names.
func ReadRecords(
	ctx context.Context, stored *advisorydb.Store, groups []resource.UID, names []string,
) (Records, error) {
	slices.Sort(names)
	found, err := stored.Records(ctx, store.Reach{Under: groups}, slices.Compact(names))
	byName := Records{}
	for _, a := range found {
		for _, name := range a.OwnNames() {
			byName[name] = append(byName[name], a)
		}
	}
	return byName, err
}

// Names returns the ID and the aliases of a finding.
func (v Finding) Names() []string { return append([]string{v.ID}, v.Aliases...) }

// Complete adds the ratings of records with a name of the finding, and its title if it has none. It considers only
// records that count in the places of the finding.
func (r Records) Complete(v *Finding) {
	v.views = r.Views(v.views)
	v.rate()
	var ratings []Rating
	title := ""
	for _, name := range v.Names() {
		for _, a := range r[name] {
			if !v.counts(a.UID.Parent()) {
				continue
			}
			ratings = append(ratings, RatingsOf(a, "", a.ArtifactName)...)
			if title == "" || a.ID == v.ID {
				title = a.Summary
			}
		}
	}
	v.AddRatings(ratings)
	if v.Summary == "" || slices.ContainsFunc(r[v.ID], func(a vuln.Advisory) bool {
		return a.ID == v.ID && v.counts(a.UID.Parent())
	}) {
		v.Summary = cmp.Or(title, v.Summary)
	}
}
