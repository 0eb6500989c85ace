package iam

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Holding is a role that somebody holds on a group.
type Holding struct {
	Group resource.Group
	Role  resource.Role
}

// holdingsTold is how many holdings Myself tells.
const holdingsTold = 1000

// Myself returns who the caller is, and the roles they hold: of more than a
// thousand, the first. A caller who has no identity any more has only a uid.
func (s *Service) Myself(ctx context.Context) (authz.Caller, resource.Identity, []Holding, error) {
	c, err := caller(ctx)
	if err != nil {
		return c, resource.Identity{}, nil, err
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if errors.Is(err, fault.NotFound) {
		i, err = resource.Identity{UID: c.Identity}, nil
	}
	if err != nil {
		return c, i, nil, err
	}
	var all []Holding
	for _, held := range s.authz.GrantsOf(c.Identity) {
		if len(all) == holdingsTold {
			break
		}
		g, err := s.store.Group(ctx, held.Group)
		if errors.Is(err, fault.NotFound) { // has just gone
			continue
		}
		if err != nil {
			return c, i, nil, err
		}
		r, err := s.store.Role(ctx, held.Role)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return c, i, nil, err
		}
		all = append(all, Holding{g, r})
	}
	return c, i, all, nil
}
