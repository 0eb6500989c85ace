package query

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// rateIn sets the severities of findings by the groups of the images that have them.
func (s *Service) rateIn(ctx context.Context, c *groupContents, findings []GroupFinding) error {
	var numbers []int64
	places := map[resource.UID]bool{}
	c.groups = map[int64]resource.UID{}
	for _, i := range c.images {
		if c.counts(i) {
			c.groups[i.Number], numbers = i.Repo.Parent(), append(numbers, i.Number)
			places[i.Repo.Parent()] = true
		}
	}
	everywhere := slices.Collect(maps.Keys(places))
	alike := map[resource.UID]bool{} // whether advisories of a group count in all places or in none
	isLocal := func(v GroupFinding) (local bool) {
		v.Groups(func(g resource.UID) {
			if _, ok := alike[g]; !ok {
				inside := slices.IndexFunc(everywhere, g.Covers)
				outside := slices.IndexFunc(everywhere, func(p resource.UID) bool { return !g.Covers(p) })
				alike[g] = inside < 0 || outside < 0
			}
			local = local || !alike[g]
		})
		return local
	}
	var packages []int64
	for i, v := range findings {
		if isLocal(v) {
			findings[i].local, packages = true, append(packages, v.number)
		} else {
			findings[i].RateIn(everywhere[:min(1, len(everywhere))]...)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	having, err := s.packages.HavingEach(ctx, numbers, slices.Compact(packages))
	if err != nil {
		return err
	}
	in := map[int64][]resource.UID{} // groups of the images that have a package
	for id, images := range having {
		clear(places)
		for _, n := range images {
			places[c.groups[n]] = true
		}
		in[id] = slices.Collect(maps.Keys(places))
	}
	for i, v := range findings {
		if v.local {
			findings[i].RateIn(in[v.number]...)
		}
	}
	return ctx.Err()
}

// SeverityIn returns the severity that a finding of the answer has in an image, by the image's number. It may be lower
// than the severity of the finding, which is the worst in all its images.
func (a GroupAnswer) SeverityIn(v GroupFinding, image int64) finding.Severity {
	if group, ok := a.contents.groups[image]; ok && v.local {
		return v.Finding.SeverityIn(group)
	}
	return v.Severity
}
