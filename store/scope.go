package store

import (
	"slices"

	"github.com/holdfast-dev/holdfast/resource"
)

// A Reach is what a caller may see of a kind: everything below the groups of
// Under, these groups themselves where groups are listed, and the resources of
// Also, wherever they are. Under is sorted, and none of it is below another.
type Reach struct {
	Under []resource.UID
	Also  []resource.UID
}

// A scope is what a list may return: the reach cut with the filter.
type scope struct {
	below    []resource.UID // everything below these; sorted, disjoint
	rows     []resource.UID // these, if they exist; sorted
	children resource.UID   // what is directly below this; the others are empty then
}

func (sc scope) empty() bool { return len(sc.below) == 0 && len(sc.rows) == 0 && sc.children == "" }

// named is the place that a scope has from the filter alone, or "". What it has
// from a reach is there; this may not be.
func (sc scope) named(r Reach, f resource.PlaceFilter) resource.UID {
	at := sc.children
	if at == "" && slices.Contains(sc.below, f.DescendantsOf) {
		at = f.DescendantsOf
	}
	if slices.Contains(r.Under, at) {
		return ""
	}
	return at
}

// covered tells whether a grant reaches the whole subtree of uid.
func covered(under []resource.UID, uid resource.UID) bool {
	return slices.ContainsFunc(under, func(g resource.UID) bool { return g.Covers(uid) })
}

// sees tells whether one resource is in the scope of a reach without filters.
func (sc scope) sees(uid resource.UID) bool {
	_, row := slices.BinarySearch(sc.rows, uid)
	return row || covered(sc.below, uid.Parent())
}

// within tells whether uid passes the members of f that name a place.
func within(f resource.PlaceFilter, uid resource.UID) bool {
	return (f.DescendantsOf == "" || f.DescendantsOf != uid && f.DescendantsOf.Covers(uid)) &&
		(f.ChildrenOf == "" || uid.Parent() == f.ChildrenOf) &&
		(!f.InRoot || uid.IsRoot()) &&
		(f.AncestorsOf == "" || uid != f.AncestorsOf && uid.Covers(f.AncestorsOf)) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, uid))
}

// visible cuts what a caller may see with what was asked for. self says that
// groups are what is listed.
func visible(self bool, r Reach, f resource.PlaceFilter) scope {
	all := scope{below: r.Under, rows: slices.Clone(r.Also)}
	if self {
		all.rows = append(all.rows, r.Under...)
	}
	slices.Sort(all.rows)
	all.rows = slices.DeleteFunc(slices.Compact(all.rows), func(uid resource.UID) bool { return covered(r.Under, uid.Parent()) })
	switch {
	case len(f.IDs) > 0 || f.AncestorsOf != "":
		return all.pick(f)
	case f.InRoot: // below a group there are no roots
		return scope{rows: keep(all.rows, f)}
	case f.ChildrenOf != "":
		if f.DescendantsOf != "" && !f.DescendantsOf.Covers(f.ChildrenOf) {
			return scope{}
		}
		if covered(r.Under, f.ChildrenOf) {
			return scope{children: f.ChildrenOf}
		}
		return scope{rows: keep(all.rows, f)}
	case f.DescendantsOf != "":
		if covered(r.Under, f.DescendantsOf) {
			return scope{below: []resource.UID{f.DescendantsOf}}
		}
		inside := slices.DeleteFunc(slices.Clone(r.Under), func(g resource.UID) bool { return !f.DescendantsOf.Covers(g) })
		return scope{below: inside, rows: keep(all.rows, f)}
	}
	return all
}

// pick is the scope of a filter that names its rows, all but in so many words.
func (sc scope) pick(f resource.PlaceFilter) scope {
	rows := f.AncestorsOf.Ancestors()
	if len(f.IDs) > 0 {
		rows = slices.Clone(f.IDs)
	}
	slices.Sort(rows)
	rows = slices.DeleteFunc(keep(slices.Compact(rows), f), func(uid resource.UID) bool { return !sc.sees(uid) })
	return scope{rows: rows}
}

func keep(uids []resource.UID, f resource.PlaceFilter) []resource.UID {
	return slices.DeleteFunc(slices.Clone(uids), func(uid resource.UID) bool { return !within(f, uid) })
}
