package authz

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// HeldAt reports whether an identity held want on target or above it at a time, which must be one that
// grantlog.Store.RequirePast has accepted. It is decided by the same index as a check of now, made of what the identity
// had then on target and above it. Nothing is cached.
func (c *Checker) HeldAt(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, at time.Time,
) (bool, error) {
	grants, roles, err := c.past.GrantsAt(ctx, at, identity, append(target.Ancestors(), target))
	if err != nil {
		return false, err
	}
	x := newIndex(func() (earliest, latest time.Time) { return at, at })
	x.setGrants(identity, grants)
	x.setRoles(roles)
	return x.missing(identity, target, resource.NewCapabilities(want), now) == resource.Capabilities{}, nil
}
