package iam

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// maxNames is the greatest number of uids in one call of LookupNames.
const maxNames = 500

// A Name is the name of a resource, with its path and its kind, which is the name of its table.
type Name struct {
	resource.Info
	Kind, Path string
}

// A namedKind is a kind of resources that LookupNames finds.
type namedKind struct {
	table  string
	titled bool // whether the resources have display names
	mayGet func(s *Service, ctx context.Context, uids []resource.UID) ([]resource.UID, error)
}

var namedKinds = []namedKind{
	{"groups", true, sees(resource.GroupsList)},
	{"identities", true, (*Service).namedIdentities},
	{"identity_providers", false, sees(resource.IdentityProvidersList)},
	{"repos", false, sees(resource.RepoList)},
	{"roles", false, (*Service).namedRoles},
}

// sees returns a function that selects, among some uids, those on which the caller holds a capability.
func sees(want resource.Capability) func(*Service, context.Context, []resource.UID) ([]resource.UID, error) {
	return func(s *Service, ctx context.Context, uids []resource.UID) (seen []resource.UID, _ error) {
		for _, uid := range uids {
			if s.authz.Sees(ctx, want, uid) {
				seen = append(seen, uid)
			}
		}
		return seen, nil
	}
}

// LookupNames returns the names of resources, in the order of uids. It leaves out resources that do not exist and
// resources that the caller may not get. It finds a person if the caller would see the person in a role binding. The
// path of a resource has the names of all groups above it, as in ResolvePath.
func (s *Service) LookupNames(ctx context.Context, uids []resource.UID) ([]Name, error) {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return nil, err
	}
	if len(uids) == 0 || len(uids) > maxNames {
		return nil, fault.Field("uids", "must be 1 to %d uids", maxNames)
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	found := map[resource.UID]Name{}
	for _, k := range namedKinds {
		allowed, err := k.mayGet(s, ctx, uids)
		if err != nil {
			return nil, err
		}
		names, err := s.store.NamesOf(ctx, k.table, k.titled, allowed)
		if err != nil {
			return nil, err
		}
		for uid, info := range names {
			found[uid] = Name{Info: info, Kind: k.table}
		}
	}
	var ordered []Name
	for _, uid := range uids {
		if n, ok := found[uid]; ok {
			ordered = append(ordered, n)
			delete(found, uid)
		}
	}
	return ordered, s.addPaths(ctx, ordered)
}

// IdentityNames returns the names of those identities that the caller may see, by the rules of LookupNames. The name of
// a deleted identity is "". Every method that shows names or addresses of identities beyond the caller's own group uses
// it.
func (s *Service) IdentityNames(ctx context.Context, uids []resource.UID) (map[resource.UID]string, error) {
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	seen, err := s.namedIdentities(ctx, uids)
	if err != nil {
		return nil, err
	}
	found, err := s.store.NamesOf(ctx, "identities", false, seen)
	names := map[resource.UID]string{}
	for _, uid := range seen {
		names[uid] = found[uid].Name
	}
	return names, err
}

// addPaths sets the paths of resources.
func (s *Service) addPaths(ctx context.Context, names []Name) error {
	var ancestors []resource.UID
	for _, n := range names {
		ancestors = append(ancestors, n.UID.Ancestors()...)
	}
	slices.Sort(ancestors)
	groups, err := s.store.NamesOf(ctx, "groups", false, slices.Compact(ancestors))
	if err != nil {
		return err
	}
	for i, n := range names {
		var path []string
		for _, g := range n.UID.Ancestors() {
			path = append(path, groups[g].Name)
		}
		names[i].Path = strings.Join(append(path, n.Name), "/")
	}
	return nil
}

// namedRoles returns the roles that the caller may get.
func (s *Service) namedRoles(ctx context.Context, uids []resource.UID) ([]resource.UID, error) {
	anywhere := s.authz.RequireAnywhere(ctx, resource.RolesList)
	if anywhere != nil && !errors.Is(anywhere, fault.PermissionDenied) {
		return nil, anywhere
	}
	return slices.DeleteFunc(slices.Clone(uids), func(uid resource.UID) bool {
		if uid.IsRoot() {
			return anywhere != nil
		}
		return !s.authz.Sees(ctx, resource.RolesList, uid)
	}), nil
}

// namedIdentities returns the identities that the caller may get, and the people whom the caller would see in a
// role binding.
func (s *Service) namedIdentities(ctx context.Context, uids []resource.UID) ([]resource.UID, error) {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return nil, err
	}
	var seen, people []resource.UID
	for _, uid := range uids {
		switch {
		case c.Identity == uid && c.Narrowing().IsZero(), s.authz.Sees(ctx, resource.IdentityList, uid):
			seen = append(seen, uid)
		case uid.IsRoot():
			people = append(people, uid)
		}
	}
	visible, err := s.VisiblePeople(ctx, people)
	return append(seen, visible...), err
}

// VisiblePeople returns the people whom the caller would see in a role binding, by the rule of Redact.
func (s *Service) VisiblePeople(ctx context.Context, people []resource.UID) (seen []resource.UID, _ error) {
	reach, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil || len(reach) == 0 {
		return nil, err
	}
	joined, err := s.store.Joined(ctx, people)
	if err != nil {
		return nil, err
	}
	for _, uid := range people {
		orgs := slices.DeleteFunc(joined[uid], func(org resource.UID) bool {
			return !slices.ContainsFunc(reach, func(g resource.UID) bool { return g.Root() == org })
		})
		if len(orgs) > 0 && s.seesBindingOf(ctx, uid, orgs) {
			seen = append(seen, uid)
		}
	}
	return seen, nil
}

// seesBindingOf reports whether the caller sees a binding of a person, and the person in it, in one of the
// organizations.
func (s *Service) seesBindingOf(ctx context.Context, person resource.UID, orgs []resource.UID) bool {
	return slices.ContainsFunc(s.authz.GrantsOf(person), func(g authz.Grant) bool {
		return slices.Contains(orgs, g.Group.Root()) && s.authz.Sees(ctx, resource.RoleBindingsList, g.Group) &&
			s.authz.Sees(ctx, resource.IdentityList, g.Group)
	})
}

// maxNamesakes is the greatest number of people with one e-mail address that PeopleByEmail reads.
const maxNamesakes = 100

// PeopleByEmail returns up to n people with an e-mail address, among the people whom the caller would see in a role
// binding: see VisiblePeople. The comparison of addresses is case-sensitive.
func (s *Service) PeopleByEmail(ctx context.Context, email string, n int) ([]resource.Info, error) {
	reach, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return nil, err
	}
	var orgs, uids []resource.UID
	for _, g := range reach {
		orgs = append(orgs, g.Root())
	}
	found, err := s.store.PeopleWithEmail(ctx, email, slices.Compact(orgs), maxNamesakes)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	for _, i := range found {
		uids = append(uids, i.UID)
	}
	seen, err := s.VisiblePeople(ctx, uids)
	found = slices.DeleteFunc(found, func(i resource.Info) bool { return !slices.Contains(seen, i.UID) })
	return found[:min(n, len(found))], err
}
