package store

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Reach is the set of resources that a caller may see. It contains everything below the
// groups in Under, these groups themselves if groups are listed, and the resources in Also,
// wherever they are. Under is sorted, and no group in it is below another.
type Reach struct {
	Under []resource.UID
	Also  []resource.UID
}

// A Scope is the set of resources that a list may return: the intersection of the reach and
// the filter.
type Scope struct {
	Below    []resource.UID // selects everything below these groups; sorted, disjoint
	Rows     []resource.UID // selects these resources, if they exist; sorted
	Children resource.UID   // selects the children of this group; if it is set, the other fields are empty
}

// Empty reports whether a list has nothing to return.
func (sc Scope) Empty() bool { return len(sc.Below) == 0 && len(sc.Rows) == 0 && sc.Children == "" }

// fromFilter returns the group in a scope that comes only from the filter, or "". The
// groups in a reach exist, but this one may not.
func (sc Scope) fromFilter(r Reach, f resource.UIDFilter) resource.UID {
	group := sc.Children
	if group == "" && slices.Contains(sc.Below, f.DescendantsOf) {
		group = f.DescendantsOf
	}
	if slices.Contains(r.Under, group) {
		return ""
	}
	return group
}

// Covered reports whether one of the groups covers the whole subtree of uid.
func Covered(under []resource.UID, uid resource.UID) bool {
	return slices.ContainsFunc(under, func(g resource.UID) bool { return g.Covers(uid) })
}

// Overlap returns the intersection of two sets of subtrees. In each set, as in the
// result, no group is below another.
func Overlap(a, b []resource.UID) []resource.UID {
	var both []resource.UID
	for _, x := range a {
		for _, y := range b {
			switch {
			case x.Covers(y):
				both = append(both, y)
			case y.Covers(x):
				both = append(both, x)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// sees reports whether the scope, which comes from a reach without filters, contains a resource.
func (sc Scope) sees(uid resource.UID) bool {
	_, row := slices.BinarySearch(sc.Rows, uid)
	return row || Covered(sc.Below, uid.Parent())
}

// within reports whether uid passes a filter.
func within(f resource.UIDFilter, uid resource.UID) bool {
	return (f.DescendantsOf == "" || f.DescendantsOf != uid && f.DescendantsOf.Covers(uid)) &&
		(f.ChildrenOf == "" || uid.Parent() == f.ChildrenOf) &&
		(!f.InRoot || uid.IsRoot()) &&
		(f.AncestorsOf == "" || uid != f.AncestorsOf && uid.Covers(f.AncestorsOf)) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, uid))
}

// Visible returns the intersection of a caller's reach and a filter. self means that
// groups are listed.
func Visible(self bool, r Reach, f resource.UIDFilter) Scope {
	visible := Scope{Below: r.Under, Rows: slices.Clone(r.Also)}
	if self {
		visible.Rows = append(visible.Rows, r.Under...)
	}
	slices.Sort(visible.Rows)
	visible.Rows = slices.DeleteFunc(slices.Compact(visible.Rows), func(uid resource.UID) bool {
		return Covered(r.Under, uid.Parent())
	})
	switch {
	case len(f.IDs) > 0 || f.AncestorsOf != "":
		return visible.pick(f)
	case f.InRoot: // there are no roots below a group
		return Scope{Rows: filterRows(visible.Rows, f)}
	case f.ChildrenOf != "":
		if f.DescendantsOf != "" && !f.DescendantsOf.Covers(f.ChildrenOf) {
			return Scope{}
		}
		if Covered(r.Under, f.ChildrenOf) {
			return Scope{Children: f.ChildrenOf}
		}
		return Scope{Rows: filterRows(visible.Rows, f)}
	case f.DescendantsOf != "":
		if Covered(r.Under, f.DescendantsOf) {
			return Scope{Below: []resource.UID{f.DescendantsOf}}
		}
		inside := slices.DeleteFunc(slices.Clone(r.Under), func(g resource.UID) bool { return !f.DescendantsOf.Covers(g) })
		return Scope{Below: inside, Rows: filterRows(visible.Rows, f)}
	}
	return visible
}

// scope returns the resources that a list of the kind may return.
func (k *Kind[T]) scope(r Reach, f resource.UIDFilter) Scope {
	if !k.InGroup {
		return Visible(k.GroupUID, r, f)
	}
	if group := f.ChildrenOf; group != "" {
		return k.ofGroup(r, f, group)
	}
	sc := Visible(k.GroupUID, r, f)
	if group := f.DescendantsOf; group != "" {
		sc.Rows = append(sc.Rows, k.ofGroup(r, f, group).Rows...)
		slices.Sort(sc.Rows)
	}
	return sc
}

// ofGroup returns the scope for a kind that has at most one resource per group,
// with the group's uid. The scope is empty if the resource does not pass the
// filter.
func (k *Kind[T]) ofGroup(r Reach, f resource.UIDFilter, group resource.UID) Scope {
	below := f.DescendantsOf == "" || f.DescendantsOf.Covers(group)
	if !below || len(f.IDs) > 0 && !slices.Contains(f.IDs, group) {
		return Scope{}
	}
	f.IDs, f.ChildrenOf, f.DescendantsOf = []resource.UID{group}, "", ""
	return Visible(k.GroupUID, r, f)
}

// pick returns the scope for a filter that names its rows, either by their UIDs
// or as the ancestors of one UID.
func (sc Scope) pick(f resource.UIDFilter) Scope {
	rows := f.AncestorsOf.Ancestors()
	if len(f.IDs) > 0 {
		rows = slices.Clone(f.IDs)
	}
	slices.Sort(rows)
	rows = slices.DeleteFunc(filterRows(slices.Compact(rows), f), func(uid resource.UID) bool { return !sc.sees(uid) })
	return Scope{Rows: rows}
}

// filterRows returns the uids that pass a filter.
func filterRows(uids []resource.UID, f resource.UIDFilter) []resource.UID {
	return slices.DeleteFunc(slices.Clone(uids), func(uid resource.UID) bool { return !within(f, uid) })
}
