package authz

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// maxAssumable is the greatest number of identities that can be assumed, directly or in several steps, through one
// identity. Only an attacker needs more.
const maxAssumable = 256

// RequireBecome returns nil if the caller holds every capability that a person gains by becoming identity, for at least
// as long. These are the capabilities of the grants that the identity has now or in the future, and of every identity
// that it can assume, directly or in several steps. RequireBecome returns fault.PermissionDenied if the caller lacks
// one of them, and fault.FailedPrecondition if there are more than maxAssumable such identities.
func (c *Checker) RequireBecome(ctx context.Context, identity resource.UID) error {
	caller, err := c.caller(ctx)
	if err != nil {
		return err
	}
	assumable, err := c.Assumable(ctx, identity)
	if err == nil {
		err = c.denyBecoming(&caller, assumable)
	}
	if err == nil {
		c.allow(ctx, becoming{identity, assumable})
	}
	return err
}

// RequireBecomeBy is RequireBecome for the caller by, who need not be the caller of the request. It returns
// fault.PermissionDenied if the person by is suspended, whose grants have no effect.
func (c *Checker) RequireBecomeBy(ctx context.Context, by Caller, identity resource.UID) error {
	c.mu.RLock()
	suspended := c.isSuspended(&by)
	c.mu.RUnlock()
	if suspended {
		return fault.New(fault.PermissionDenied, "Permission denied: the directory has deactivated this person")
	}
	assumable, err := c.Assumable(ctx, identity)
	if err != nil {
		return err
	}
	return c.denyBecoming(&by, assumable)
}

// denyBecoming returns nil if a caller holds every capability that identities hold, for at least as long. Otherwise it
// returns fault.PermissionDenied.
func (c *Checker) denyBecoming(by *Caller, identities []resource.UID) error {
	for _, i := range identities {
		for _, held := range c.unexpiredGrants(i) {
			if err := c.denyUnless(by, held.Capabilities, held.Group, held.end, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// A timedGrant is a grant and the time at which it ends.
type timedGrant struct {
	Grant
	end uint32 // seconds since 1970, or never
}

// unexpiredGrants returns the grants of an identity that are active or have not begun.
func (c *Checker) unexpiredGrants(identity resource.UID) (grants []timedGrant) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, g := range c.index.unexpired(identity) {
		held := Grant{c.index.groups.uids[g.group], c.index.roles.uids[g.role], c.index.allowed[g.role]}
		grants = append(grants, timedGrant{held, g.end})
	}
	return grants
}

// Assumable returns the identity and every other identity that can be assumed from it in one or several exchanges.
// Identity A can be assumed from identity B if A trusts tokens of our own issuer whose subject is B. Assumable returns
// fault.FailedPrecondition if there are more than maxAssumable identities.
func (c *Checker) Assumable(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	assumable := []resource.UID{identity}
	for next := assumable; c.Issuer != "" && len(next) > 0; {
		found, err := c.store.TrustingUs(ctx, c.Issuer, next, maxAssumable)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, uid := range found {
			if !slices.Contains(assumable, uid) {
				assumable, next = append(assumable, uid), append(next, uid)
			}
		}
		if len(assumable) > maxAssumable {
			return nil, fault.Unmet("TOO_MANY_IDENTITIES",
				"more than %d identities can be assumed through this one", maxAssumable)
		}
	}
	return assumable, nil
}
