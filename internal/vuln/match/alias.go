package match

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An aliasSet is a vulnerability. It has the matches of the advisories that describe it before and after a change, by
// package.
type aliasSet struct {
	id            int64
	group         resource.UID // group that contains the advisories
	before, after map[int64][]findingdb.Hit
	source        string
}

func newAliasSet(id int64, group resource.UID, source string) *aliasSet {
	return &aliasSet{id: id, group: group, source: source, before: map[int64][]findingdb.Hit{},
		after: map[int64][]findingdb.Hit{}}
}

// changed returns two lists of packages: added are affected only after the change, and removed were affected only
// before it.
func (a *aliasSet) changed() (added, removed []int64) {
	for p := range a.after {
		if len(a.before[p]) == 0 {
			added = append(added, p)
		}
	}
	for p := range a.before {
		if len(a.after[p]) == 0 {
			removed = append(removed, p)
		}
	}
	slices.Sort(added)
	slices.Sort(removed)
	return added, removed
}

// setsOf returns the vulnerabilities in a change that affect a package of at least one image. announced contains the
// images by package.
func setsOf(c findingdb.Change, announced map[int64]findingdb.Images) map[int64]*aliasSet {
	sets := map[int64]*aliasSet{}
	add := func(advisory, pkg int64) {
		if announced[pkg].Len() == 0 {
			return
		}
		for _, id := range slices.Concat(c.Sets.SetsBefore(advisory), c.Sets.SetsOf(advisory)) {
			if sets[id] == nil {
				sets[id] = newAliasSet(id, c.Advisories[advisory].UID.Parent(), c.Source(advisory))
			}
		}
	}
	for _, v := range slices.Concat(c.Opened, c.Closed) {
		add(v.Advisory, v.Package)
	}
	for _, h := range c.Moved {
		add(h.Advisory, h.Package)
	}
	return sets
}

// announcedImages returns, for each package, the images of an organization that had the package according to the events
// so far.
func announcedImages(
	changed []findingdb.ChangedImage, images findingdb.Images, have map[int64]findingdb.Images,
) map[int64]findingdb.Images {
	pending := findingdb.Images{}
	for _, n := range changed {
		pending.Add(n.Number)
	}
	announced := map[int64]findingdb.Images{}
	for p, having := range have {
		announced[p] = having.And(images)
		announced[p].Minus(pending)
	}
	for _, n := range changed {
		for _, p := range n.Announced {
			if announced[p] != nil && images.Has(n.Number) {
				announced[p].Add(n.Number)
			}
		}
	}
	return announced
}

// hits returns the matches that an event is about: the matches after the change for an opening, and the matches before
// the change for a closing.
func (a *aliasSet) hits(event resource.EventType) map[int64][]findingdb.Hit {
	if event == resource.FindingClosed {
		return a.before
	}
	return a.after
}

// score returns the highest score of matches.
func score(hits map[int64][]findingdb.Hit) (highest int64) {
	for _, matches := range hits {
		for _, h := range matches {
			highest = max(highest, h.Score)
		}
	}
	return highest
}
