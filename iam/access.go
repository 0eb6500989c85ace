package iam

import (
	"context"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// An Access is the answer to who may do something, and why: the bindings that
// allow it. Those on groups the caller must not see are left out, and
// Incomplete says that there are such groups.
type Access struct {
	page.Page[resource.BoundRole]
	Allowed    bool
	Incomplete bool
}

// maxReasons is how many bindings a check names.
const maxReasons = page.MaxSize

// CheckAccess tells whether an identity holds a capability on a place, and
// through which bindings. The caller needs role_bindings.list there, or is the
// identity.
func (s *Service) CheckAccess(ctx context.Context, identity resource.UID, want resource.Capability, place resource.UID) (Access, error) {
	c, err := caller(ctx)
	if err != nil {
		return Access{}, err
	}
	self := c.Identity == identity && c.Narrowing().IsZero()
	if !self {
		if err := s.authz.Require(ctx, resource.RoleBindingsList, place); err != nil {
			return Access{}, err
		}
	}
	h, incomplete, err := s.holding(ctx, want, place, self)
	if err != nil {
		return Access{}, err
	}
	h.Identity = identity
	got, err := s.store.Holders(ctx, h, page.Request{Size: maxReasons, Order: byUID})
	for i := range got.Items {
		got.Items[i] = s.shown(ctx, got.Items[i])
	}
	return Access{Page: got, Allowed: s.authz.Holds(identity, want, place), Incomplete: incomplete}, err
}

// ListAccess returns a page of the bindings that give a capability on a place,
// made there or above. The caller needs role_bindings.list there.
func (s *Service) ListAccess(ctx context.Context, want resource.Capability, place resource.UID, p page.Params) (Access, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsList, place); err != nil {
		return Access{}, err
	}
	h, incomplete, err := s.holding(ctx, want, place, false)
	if err != nil {
		return Access{}, err
	}
	req, err := s.pages.Request(accessList, []string{want.String(), string(place)}, p)
	if err != nil {
		return Access{}, err
	}
	got, err := s.store.Holders(ctx, h, req)
	if err != nil {
		return Access{}, err
	}
	for i := range got.Items {
		got.Items[i] = s.shown(ctx, got.Items[i])
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// holding is what to look for: the roles that have a capability, on a place and
// the groups above it that the caller may see the bindings of; all of them if
// the bindings are the caller's own.
func (s *Service) holding(ctx context.Context, want resource.Capability, place resource.UID, all bool) (h store.Holding, incomplete bool, _ error) {
	for _, g := range append(place.Ancestors(), place) {
		if all || s.authz.Require(ctx, resource.RoleBindingsList, g) == nil {
			h.Groups = append(h.Groups, g)
		} else {
			incomplete = true
		}
	}
	h.Roles = s.authz.RolesWith(want)
	return h, incomplete, nil
}
