package authz

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// A Checker answers whether a caller may act on a place. It answers from
// memory: a binding made or removed counts from the moment the write returns,
// whichever replica has written.
//
// When it cannot know whether another has, because the database is away,
// methods that return an error return fault.Unavailable, and those that do not
// answer as if the caller held nothing.
type Checker struct {
	Issuer string // the address of our own issuer, which identities can trust; set before use

	store *store.Store
	log   *slog.Logger
	now   func() time.Time

	mu      sync.RWMutex // guards what is below; never held during I/O
	index   *index
	revoked map[resource.UID]time.Time // tokens issued until then are void

	changed []func(identity resource.UID) // set before the first change

	follow follower
	behind atomic.Bool // a local change could not be read
	shared bool        // there may be other writers
}

// Grant is one role an identity holds, and what it allows.
type Grant struct {
	Group, Role  resource.UID
	Capabilities resource.Capabilities
}

// Require returns nil if the caller holds want on place or above it. It returns
// fault.Unauthenticated if there is no caller, and otherwise
// fault.PermissionDenied whether or not there is such a place.
func (c *Checker) Require(ctx context.Context, want resource.Capability, place resource.UID) error {
	var one resource.Capabilities
	one.Add(want)
	return c.RequireAll(ctx, one, place)
}

// RequireAll is Require for several capabilities, which may come from several
// bindings. It names the first that is missing.
func (c *Checker) RequireAll(ctx context.Context, want resource.Capabilities, place resource.UID) error {
	caller, err := c.caller(ctx)
	if err != nil {
		return err
	}
	return denial(c.missing(&caller, want, place), place)
}

// denial is the error of whoever lacks capabilities on a place. It names the
// first. It is nil if none is missing.
func denial(missing resource.Capabilities, place resource.UID) error {
	if missing == (resource.Capabilities{}) {
		return nil
	}
	var first resource.Capability // of no name, if a newer version stored what is missing
	if all := missing.All(); len(all) > 0 {
		first = all[0]
	}
	return fault.Denied(first.String(), string(place))
}

// RequireAnywhere returns nil if the caller holds want on any group at all.
func (c *Checker) RequireAnywhere(ctx context.Context, want resource.Capability) error {
	caller, err := c.caller(ctx)
	if err != nil {
		return err
	}
	if len(c.reach(&caller, want, 1)) == 0 {
		return fault.Denied(want.String(), "any group")
	}
	return nil
}

// Reach returns the groups the caller holds want on, sorted, and none of them
// within another. It returns fault.Unauthenticated if there is no caller.
func (c *Checker) Reach(ctx context.Context, want resource.Capability) ([]resource.UID, error) {
	caller, err := c.caller(ctx)
	if err != nil {
		return nil, err
	}
	groups := c.reach(&caller, want, -1)
	slices.Sort(groups) // what a group covers comes right after it
	var last resource.UID
	return slices.DeleteFunc(groups, func(g resource.UID) bool {
		if last.Covers(g) {
			return true
		}
		last = g
		return false
	}), nil
}

// GrantsOf returns what an identity holds, by group and role.
func (c *Checker) GrantsOf(identity resource.UID) []Grant {
	var all []Grant
	c.mu.RLock()
	for group, role := range c.index.all(identity) {
		all = append(all, Grant{group, c.index.roles.uids[role], c.index.allowed[role]})
	}
	c.mu.RUnlock()
	slices.SortFunc(all, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Role, b.Role))
	})
	return slices.Compact(all)
}

// Holds tells whether an identity holds want on place or above it.
func (c *Checker) Holds(identity resource.UID, want resource.Capability, place resource.UID) bool {
	var one resource.Capabilities
	one.Add(want)
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.missing(identity, place, one) == resource.Capabilities{}
}

// RolesWith returns the roles that allow want, sorted.
func (c *Checker) RolesWith(want resource.Capability) []resource.UID {
	var all []resource.UID
	c.mu.RLock()
	for i, caps := range c.index.allowed {
		if uid := c.index.roles.uids[i]; uid != "" && caps.Has(want) {
			all = append(all, uid)
		}
	}
	c.mu.RUnlock()
	slices.Sort(all)
	return all
}

// OwnsAny tells whether the caller holds the owner role on an organization. A
// token narrowed to less than creating groups does not own. It returns
// fault.Unauthenticated if there is no caller.
func (c *Checker) OwnsAny(ctx context.Context) (bool, error) {
	caller, err := c.caller(ctx)
	if err != nil || caller.Caps != nil && !caller.Caps.Has(resource.GroupsCreate) {
		return false, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for group, role := range c.index.all(caller.Identity) {
		if group.IsRoot() && c.index.roles.uids[role] == resource.OwnerRole && caller.inScope(group) {
			return true, nil
		}
	}
	return false, nil
}

// Revoked returns why a token that says it is c's is void: its identity, or one
// that it was assumed through, has been deleted since it was made; its session has
// ended; or what the provider believes that vouched for its person has changed.
// Tokens are dated in whole seconds, so one made in the second of the deletion is
// void too. It returns "" for a token that is not.
func (c *Checker) Revoked(caller Caller) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.revoked) == 0 {
		return ""
	}
	if c.deleted(caller.Identity, caller.Issued) {
		return "the identity of this token has been deleted"
	}
	for act := caller.Act; act != nil; act = act.Act {
		if act.Issuer == c.Issuer && c.deleted(resource.UID(act.Subject), caller.Issued) {
			return "an identity that this token was assumed through has been deleted"
		}
	}
	if caller.Session != "" {
		if _, ok := c.revoked[resource.SessionSubject(caller.Session)]; ok {
			return "the session of this token has ended"
		}
	}
	if caller.Voucher != "" {
		if _, ok := c.revoked[resource.VoucherSubject(caller.Voucher)]; ok {
			return "the identity provider behind this token has changed; sign in again"
		}
	}
	return ""
}

// deleted reports whether an identity was deleted after a token was issued.
func (c *Checker) deleted(identity resource.UID, issued time.Time) bool {
	until, ok := c.revoked[identity]
	return ok && !issued.After(until)
}

// caller returns who asks, once the index is known to be current.
func (c *Checker) caller(ctx context.Context) (Caller, error) {
	caller, ok := CallerFrom(ctx)
	if !ok {
		return Caller{}, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	return caller, c.EnsureCurrent(ctx)
}

// missing returns what of want the caller lacks on a place.
func (c *Checker) missing(caller *Caller, want resource.Capabilities, place resource.UID) resource.Capabilities {
	if !caller.inScope(place) {
		return want
	}
	if caller.Caps != nil {
		if lacking := want.Without(*caller.Caps); lacking != (resource.Capabilities{}) {
			return lacking
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.missing(caller.Identity, place, want)
}

// reach returns the places the caller holds want on, in no order and some
// perhaps within others; no more than limit grants' worth, unless it is
// negative.
func (c *Checker) reach(caller *Caller, want resource.Capability, limit int) []resource.UID {
	if caller.Caps != nil && !caller.Caps.Has(want) {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var groups []resource.UID
	for group, role := range c.index.all(caller.Identity) {
		if !c.index.allowed[role].Has(want) {
			continue
		}
		groups = append(groups, caller.Within(group)...)
		if limit >= 0 && len(groups) >= limit {
			break
		}
	}
	return groups
}
