package iam

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A HeldRole is a role that somebody holds on a group.
type HeldRole struct {
	Group resource.Group
	Role  resource.Role
}

// maxHeldRoles is how many holdings Myself tells.
const maxHeldRoles = 1000

// Myself returns who the caller is, and the roles they hold where their token is
// good: of more than a thousand, the first. A caller who has no identity any more
// has only a uid. A token that is narrowed tells nothing of the person but that.
// The provider is the one that vouched for them, if one did.
func (s *Service) Myself(ctx context.Context) (authz.Caller, resource.Identity, resource.IdentityProvider, []HeldRole, error) {
	var vouching resource.IdentityProvider
	c, err := caller(ctx)
	if err != nil {
		return c, resource.Identity{}, vouching, nil, err
	}
	if uid := c.Voucher.Provider(); uid != "" {
		if vouching, err = s.store.Provider(ctx, uid); err != nil {
			return c, resource.Identity{}, vouching, nil, err
		}
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if errors.Is(err, fault.NotFound) || err == nil && !c.Narrowing().IsZero() {
		i, err = resource.Identity{UID: c.Identity}, nil
	}
	if err != nil {
		return c, i, vouching, nil, err
	}
	all, err := s.heldRoles(ctx, s.effectiveGrants(&c))
	return c, i, vouching, all, err
}

// heldRoles returns groups and roles that are held; those that have just gone are
// left out.
func (s *Service) heldRoles(ctx context.Context, held []authz.Grant) (all []HeldRole, _ error) {
	for _, h := range held[:min(len(held), maxHeldRoles)] {
		g, err := s.store.Group(ctx, h.Group)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := s.store.Role(ctx, h.Role)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, HeldRole{g, r})
	}
	return all, nil
}

// effectiveGrants returns what the caller holds, where their token is good for it.
func (s *Service) effectiveGrants(c *authz.Caller) (all []authz.Grant) {
	for _, held := range s.authz.GrantsOf(c.Identity) {
		for _, place := range c.Within(held.Group) {
			all = append(all, authz.Grant{Group: place, Role: held.Role, Capabilities: held.Capabilities})
		}
	}
	return all
}
