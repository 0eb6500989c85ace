package iam

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A HeldRole is a role that the caller holds on a group.
type HeldRole struct {
	Group resource.Group
	Role  resource.Role
}

// maxHeldRoles is the greatest number of roles that Myself returns.
const maxHeldRoles = 1000

// Myself returns the caller, their identity, the provider that vouched for them, if one did, and the first maxHeldRoles
// roles that they hold within the scopes of their token. The identity has only a UID if it no longer exists or if the
// token is narrowed.
func (s *Service) Myself(
	ctx context.Context,
) (c authz.Caller, i resource.Identity, idp resource.IdentityProvider, roles []HeldRole, err error) {
	if c, err = authz.RequireCaller(ctx); err != nil {
		return c, i, idp, nil, err
	}
	if uid := c.Voucher.Provider(); uid != "" {
		if idp, err = s.store.Provider(ctx, uid); err != nil {
			return c, i, idp, nil, err
		}
	}
	i, err = s.store.Identity(ctx, c.Identity)
	if errors.Is(err, fault.NotFound) || err == nil && !c.Narrowing().IsZero() {
		i, err = resource.Identity{UID: c.Identity}, nil
	}
	if err == nil {
		roles, err = s.heldRoles(ctx, s.effectiveGrants(&c))
	}
	return c, i, idp, roles, err
}

// heldRoles reads the groups and roles of grants. It leaves out grants whose group or role has just been deleted.
func (s *Service) heldRoles(ctx context.Context, held []authz.Grant) (roles []HeldRole, _ error) {
	for _, h := range held[:min(len(held), maxHeldRoles)] {
		g, err := s.store.Group(ctx, h.Group)
		var r resource.Role
		if err == nil {
			r, err = s.store.Role(ctx, h.Role)
		}
		switch {
		case err == nil:
			roles = append(roles, HeldRole{g, r})
		case !errors.Is(err, fault.NotFound):
			return nil, err
		}
	}
	return roles, nil
}

// effectiveGrants returns the caller's grants, restricted to the scopes of their token.
func (s *Service) effectiveGrants(c *authz.Caller) (effective []authz.Grant) {
	for _, held := range s.authz.GrantsOf(c.Identity) {
		for _, group := range c.Within(held.Group) {
			effective = append(effective, authz.Grant{Group: group, Role: held.Role, Capabilities: held.Capabilities})
		}
	}
	return effective
}
