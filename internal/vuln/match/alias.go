package match

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An aliasSet is an alias set with its matches, by package: before a change and after it.
type aliasSet struct {
	id            int64
	group         resource.UID // of its advisories
	before, after map[int64][]findingdb.Hit
	source        string
}

func newAliasSet(id int64, group resource.UID, source string) *aliasSet {
	return &aliasSet{id: id, group: group, source: source, before: map[int64][]findingdb.Hit{}, after: map[int64][]findingdb.Hit{}}
}

// changed returns the packages that the set affects after, and not before; and the other way
// around.
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

// setsOf returns the alias sets of a change that affect a package which an image has.
func setsOf(c findingdb.Change, told map[int64]findingdb.Images) map[int64]*aliasSet {
	all := map[int64]*aliasSet{}
	for _, v := range slices.Concat(c.Opened, c.Closed) {
		id := c.Sets.Of(v.Advisory)
		if all[id] == nil && told[v.Package].Len() > 0 {
			all[id] = newAliasSet(id, c.Advisories[v.Advisory].UID.Parent(), c.Source(v.Advisory))
		}
	}
	return all
}

// announcedImages returns which images of an organization have each package, as events told.
func announcedImages(news []findingdb.News, images findingdb.Images, have map[int64]findingdb.Images) map[int64]findingdb.Images {
	pending := findingdb.Images{}
	for _, n := range news {
		pending.Add(n.Number)
	}
	told := map[int64]findingdb.Images{}
	for p, of := range have {
		told[p] = of.And(images)
		told[p].Minus(pending)
	}
	for _, n := range news {
		for _, p := range n.Told {
			if told[p] != nil && images.Has(n.Number) {
				told[p].Add(n.Number)
			}
		}
	}
	return told
}

// hits returns the matches that an event is about.
func (a *aliasSet) hits(event resource.EventType) map[int64][]findingdb.Hit {
	if event == resource.FindingClosed {
		return a.before
	}
	return a.after
}

// score returns the highest score of matches.
func score(hits map[int64][]findingdb.Hit) (highest int64) {
	for _, all := range hits {
		for _, h := range all {
			highest = max(highest, h.Score)
		}
	}
	return highest
}
