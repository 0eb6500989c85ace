package authz

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// maxBecome is how many identities are followed from one that somebody could
// become. Only an attacker chains more.
const maxBecome = 256

// RequireBecome returns nil if the caller holds everything that whoever becomes an identity could do, for as long: what
// the identity holds or will hold, and what every identity does that it can assume, directly or through others. It returns
// fault.PermissionDenied if the caller does not, and fault.FailedPrecondition if there are too many identities
// to follow.
func (c *Checker) RequireBecome(ctx context.Context, identity resource.UID) error {
	caller, err := c.caller(ctx)
	if err != nil {
		return err
	}
	return c.RequireBecomeBy(ctx, caller, identity)
}

// RequireBecomeBy is RequireBecome for somebody other than the caller of the request.
func (c *Checker) RequireBecomeBy(ctx context.Context, by Caller, identity resource.UID) error {
	all, err := c.Assumable(ctx, identity)
	if err != nil {
		return err
	}
	for _, i := range all {
		for _, held := range c.lasting(i) {
			if err := c.denyMissing(&by, held.Capabilities, held.Group, held.end); err != nil {
				return err
			}
		}
	}
	return nil
}

// A lastingGrant is a grant with its end.
type lastingGrant struct {
	Grant
	end uint32
}

// lasting returns the grants of an identity that are not over.
func (c *Checker) lasting(identity resource.UID) (all []lastingGrant) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, g := range c.index.notOver(identity) {
		held := Grant{c.index.groups.uids[g.group], c.index.roles.uids[g.role], c.index.allowed[g.role]}
		all = append(all, lastingGrant{held, g.end})
	}
	return all
}

// Assumable returns an identity and every other that whoever has become it can assume, in one exchange or
// several: those that trust our own issuer with it as their subject.
func (c *Checker) Assumable(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	all := []resource.UID{identity}
	for next := all; c.Issuer != "" && len(next) > 0; {
		found, err := c.store.TrustingUs(ctx, c.Issuer, next, maxBecome)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, uid := range found {
			if !slices.Contains(all, uid) {
				all, next = append(all, uid), append(next, uid)
			}
		}
		if len(all) > maxBecome {
			return nil, fault.Unmet("TOO_MANY_IDENTITIES",
				"more than %d identities could be assumed through this one", maxBecome)
		}
	}
	return all, nil
}
