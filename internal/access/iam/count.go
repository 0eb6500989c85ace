package iam

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Count is the number of resources of a kind in a group.
type Count = store.Count

// Counts has the number of resources of each kind in a group. A kind that the caller may not list there is nil.
type Counts struct {
	Groups, Repos, Identities, Roles, RoleBindings *Count
}

// A countedKind is a kind that CountChildren counts.
type countedKind struct {
	table string
	want  resource.Capability   // capability that a caller needs to list the kind
	field func(*Counts) **Count // returns the field of Counts for the kind
}

var countedKinds = []countedKind{
	{"groups", resource.GroupsList, func(c *Counts) **Count { return &c.Groups }},
	{"repos", resource.RepoList, func(c *Counts) **Count { return &c.Repos }},
	{"identities", resource.IdentityList, func(c *Counts) **Count { return &c.Identities }},
	{"roles", resource.RolesList, func(c *Counts) **Count { return &c.Roles }},
	{"role_bindings", resource.RoleBindingsList, func(c *Counts) **Count { return &c.RoleBindings }},
}

// A CountedGroup is a group with the number of its resources.
type CountedGroup struct {
	resource.Group
	Counts Counts
}

// childList has the orders in which CountChildren can list the children of a group.
var childList = page.List{
	Kind: "children", Fields: iamdb.GroupList.Fields, Default: page.Order{Field: "name"},
}

// CountChildren returns the number of resources in a group, and a page of its direct children, each with the number of
// its resources. The caller needs groups.list on the group. A page token replaces the group. The counts are equal to
// the totals of lists.
func (s *Service) CountChildren(
	ctx context.Context, group resource.UID, p page.Params,
) (in Counts, children page.Page[CountedGroup], _ error) {
	f, req, err := page.Resume(s.pages, childList, resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: group}}, p)
	if err != nil {
		return in, children, err
	}
	group = f.UIDs.ChildrenOf
	if _, err := s.GetGroup(ctx, group); err != nil {
		return in, children, err
	}
	got, err := s.store.Groups(ctx, store.Reach{Under: []resource.UID{group}}, f, req)
	if err != nil {
		return in, children, err
	}
	groups := []resource.UID{group}
	for _, g := range got.Items {
		groups = append(groups, g.UID)
	}
	counts, err := s.counts(ctx, groups)
	if err != nil {
		return in, children, err
	}
	counted := make([]CountedGroup, len(got.Items))
	for i, g := range got.Items {
		counted[i] = CountedGroup{g, counts[i+1]}
	}
	return counts[0], page.Finish(s.pages, req, page.With(got, counted)), nil
}

// counts returns the number of resources in each of the groups, for kinds that the caller may list there.
func (s *Service) counts(ctx context.Context, groups []resource.UID) ([]Counts, error) {
	tables := make([]string, len(countedKinds))
	for i, k := range countedKinds {
		tables[i] = k.table
	}
	read, err := s.store.Counts(ctx, tables, groups)
	if err != nil {
		return nil, err
	}
	visible := make([]Counts, len(groups))
	for i, group := range groups {
		for j, k := range countedKinds {
			if s.authz.Sees(ctx, k.want, group) {
				*k.field(&visible[i]) = &read[i][j]
			}
		}
	}
	return visible, nil
}
