package authz

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// HeldAt reports whether an identity held want on target or above it at a time. grantlog.Store.RequirePast must have
// accepted that time. HeldAt builds an index from the grants that the identity had on target and above it, so that the
// rules are the same as for a check of the present. It caches nothing.
func (c *Checker) HeldAt(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, asOf time.Time,
) (bool, error) {
	grants, roles, err := c.past.GrantsAt(ctx, asOf, identity, append(target.Ancestors(), target))
	if err != nil {
		return false, err
	}
	x := newIndex(func() (earliest, latest time.Time) { return asOf, asOf })
	x.setGrants(identity, grants)
	x.setRoles(roles)
	return x.missing(identity, target, resource.NewCapabilities(want), currently) == resource.Capabilities{}, nil
}
