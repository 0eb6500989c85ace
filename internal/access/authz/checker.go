package authz

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Checker decides whether a caller may act on a resource. It answers from memory. A change of a binding takes effect
// from the moment at which its write returns, whichever replica has written it. A Checker is safe for concurrent use.
//
// If the database cannot be reached, other replicas may have made changes that this replica does not know. Then methods
// that return an error return fault.Unavailable, and the other methods answer as if the caller held nothing.
type Checker struct {
	Issuer string // address of our own token issuer; set before use

	store *iamdb.Store
	past  *grantlog.Store
	log   *slog.Logger
	now   func() time.Time

	mu        sync.RWMutex // guards the next three fields; never held during I/O
	index     *index
	revoked   map[resource.UID]time.Time // by identity or session; tokens that were issued up to this time are void
	suspended map[resource.UID]struct{}  // identities whose tokens are all void

	changed []func(identity resource.UID) // callbacks of OnChange; set before the first change

	recording bool // whether the use of grants is recorded; set before use

	homes *lru.Cache[string, resource.UID] // homes of people, by session

	follow follower
	behind atomic.Bool // whether this process has committed a change that it could not read
	shared bool        // whether other processes may write to the database
}

// A Grant is a role that an identity holds on a group, with the capabilities of the role.
type Grant struct {
	Group, Role  resource.UID
	Capabilities resource.Capabilities
}

// Require returns nil if the caller holds want on target or above it. It returns fault.Unauthenticated if there
// is no caller, and otherwise fault.PermissionDenied, whether or not target exists.
func (c *Checker) Require(ctx context.Context, want resource.Capability, target resource.UID) error {
	return c.RequireAll(ctx, resource.NewCapabilities(want), target)
}

// RequireAll is Require for several capabilities, which may come from several
// bindings. The error names the first missing capability.
func (c *Checker) RequireAll(ctx context.Context, want resource.Capabilities, target resource.UID) error {
	return c.requireUntil(ctx, want, target, currently)
}

// RequireLasting is RequireAll for a caller who gives the capabilities to others until a time, or forever if until is
// zero. It ignores grants that end before that time, so that nobody can give a capability for longer than they hold it.
func (c *Checker) RequireLasting(
	ctx context.Context, want resource.Capabilities, target resource.UID, until time.Time,
) error {
	return c.requireUntil(ctx, want, target, secondsUntil(until))
}

func (c *Checker) requireUntil(
	ctx context.Context, want resource.Capabilities, target resource.UID, until uint32,
) error {
	span := startSpan(ctx, want)
	caller, err := c.caller(ctx)
	if err == nil {
		err = c.denyUnless(&caller, want, target, until, c.recording && until == currently)
	}
	if err == nil {
		c.allow(ctx, requirement{want, target, until})
	}
	endSpan(span, err)
	return err
}

// denyUnless returns nil if the caller holds want on target at least until a time. Otherwise it returns
// fault.PermissionDenied for the first missing capability. If use is true, it records which grants were used.
func (c *Checker) denyUnless(
	caller *Caller, want resource.Capabilities, target resource.UID, until uint32, use bool,
) error {
	missing := c.check(caller, want, target, until, use)
	if missing == (resource.Capabilities{}) {
		return nil
	}
	err := denial(missing, target)
	if until != currently && c.missing(caller, missing, target, currently) == (resource.Capabilities{}) {
		err.Message += ": yours ends earlier than what you want to give; set an end that is not later"
	}
	return err
}

// startSpan starts the span of a check.
func startSpan(ctx context.Context, want resource.Capabilities) *trace.Span {
	span := trace.Leaf(ctx, "authorize")
	if !span.Recorded() {
		return nil
	}
	var names []string
	for _, c := range want.All() {
		names = append(names, c.String())
	}
	span.Set("holdfast.capabilities", strings.Join(names, " "))
	return span
}

// endSpan ends the span of a check with its result. A denial is not a failure.
func endSpan(span *trace.Span, err error) {
	if !span.Recorded() {
		return
	}
	result := "allowed"
	if err != nil {
		result = fault.From(err).Code.Reason()
	}
	span.Set("holdfast.result", result)
	span.End(nil)
}

// RequireRole checks that a role can be used in a group, and that the caller holds the capabilities of the role there
// until a time, or forever if until is zero. A managed role can be used in every group. Any other role can be used only
// in its own group and below it, because the administrators of that group decide which capabilities the role gives.
// RequireRole returns fault.InvalidArgument, naming field, if the role cannot be used in the group, and fault.NotFound
// if there is no such role.
func (c *Checker) RequireRole(ctx context.Context, group, role resource.UID, field string, until time.Time) error {
	if !role.IsRoot() && !role.Parent().Covers(group) {
		return fault.Field(field, "must be a managed role, or a role of this group or of a group above it")
	}
	r, err := c.store.Role(ctx, role)
	if err != nil {
		return err
	}
	return c.RequireLasting(ctx, r.Capabilities, group, until)
}

// denial returns the error for missing capabilities. It names the first one.
func denial(missing resource.Capabilities, target resource.UID) *fault.Error {
	var first resource.Capability // stays zero if only a newer version knows the missing capability
	if known := missing.All(); len(known) > 0 {
		first = known[0]
	}
	return fault.Denied(first.String(), string(target))
}

// RequireAnywhere returns nil if the caller holds want on at least one group. It returns the errors of Require.
func (c *Checker) RequireAnywhere(ctx context.Context, want resource.Capability) (err error) {
	span := startSpan(ctx, resource.NewCapabilities(want))
	defer func() { endSpan(span, err) }()
	caller, err := c.caller(ctx)
	if err != nil {
		return err
	}
	if len(c.reach(&caller, want, 1)) == 0 {
		return fault.Denied(want.String(), "any group")
	}
	c.allow(ctx, reached{want: want})
	return nil
}

// Reach returns the topmost groups on which the caller holds want, sorted. None of
// them is below another. It returns fault.Unauthenticated if there is no caller.
func (c *Checker) Reach(ctx context.Context, want resource.Capability) (_ []resource.UID, err error) {
	span := startSpan(ctx, resource.NewCapabilities(want))
	defer func() { endSpan(span, err) }()
	caller, err := c.caller(ctx)
	if err != nil {
		return nil, err
	}
	groups := c.reach(&caller, want, -1)
	slices.Sort(groups) // a group sorts directly before the groups below it
	var last resource.UID
	groups = slices.DeleteFunc(groups, func(g resource.UID) bool {
		if last.Covers(g) {
			return true
		}
		last = g
		return false
	})
	if len(groups) > 0 {
		c.allow(ctx, reached{want, slices.Clone(groups)})
	}
	return groups, nil
}

// GrantsOf returns the active grants of an identity, sorted by group and role.
func (c *Checker) GrantsOf(identity resource.UID) []Grant {
	var grants []Grant
	c.mu.RLock()
	for group, role := range c.index.active(identity) {
		grants = append(grants, Grant{group, c.index.roles.uids[role], c.index.allowed[role]})
	}
	c.mu.RUnlock()
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Role, b.Role))
	})
	return slices.Compact(grants)
}

// GrantsOfCaller returns the active grants of the caller. If the caller loses one of them, writes of the request fail.
func (c *Checker) GrantsOfCaller(ctx context.Context) ([]Grant, error) {
	caller, err := c.caller(ctx)
	if err != nil {
		return nil, err
	}
	grants := c.GrantsOf(caller.Identity)
	c.allow(ctx, holding{slices.Clone(grants)})
	return grants, nil
}

// Holds reports whether an identity holds want on target or above it. An identity that is suspended holds nothing.
func (c *Checker) Holds(identity resource.UID, want resource.Capability, target resource.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.isSuspended(&Caller{Identity: identity}) &&
		c.index.missing(identity, target, resource.NewCapabilities(want), currently) == resource.Capabilities{}
}

// HoldsAll reports whether an identity holds every capability of want on target or above it. An identity that is
// suspended holds nothing.
func (c *Checker) HoldsAll(identity resource.UID, want resource.Capabilities, target resource.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.isSuspended(&Caller{Identity: identity}) &&
		c.index.missing(identity, target, want, currently) == resource.Capabilities{}
}

// EndOf returns the latest end among the grants that a token can use: the unexpired grants of its identity within its
// narrowing. It returns the zero time if one of these grants has no end, or if there are no such grants.
func (c *Checker) EndOf(identity resource.UID, n resource.Narrowing) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	token := Caller{Scopes: n.Scopes}
	last := uint32(0)
	for _, g := range c.index.unexpired(identity) {
		allowed := c.index.allowed[g.role]
		if n.Caps != nil && allowed.Without(*n.Caps) == allowed || len(token.Within(c.index.groups.uids[g.group])) == 0 {
			continue
		}
		last = max(last, g.end)
	}
	if last == 0 || last == never {
		return time.Time{}
	}
	return time.Unix(int64(last), 0).UTC()
}

// Sees reports whether the caller holds want on target or above it. It returns false if the index may be out of date.
// It never waits, so it can be called inside a transaction.
func (c *Checker) Sees(ctx context.Context, want resource.Capability, target resource.UID) bool {
	caller, ok := CallerFrom(ctx)
	if !ok || !c.current() {
		return false
	}
	return c.missing(&caller, resource.NewCapabilities(want), target, currently) == resource.Capabilities{}
}

// RolesWith returns the roles that have the capability want, sorted.
func (c *Checker) RolesWith(want resource.Capability) []resource.UID {
	var roles []resource.UID
	c.mu.RLock()
	for i, caps := range c.index.allowed {
		if uid := c.index.roles.uids[i]; uid != "" && caps.Has(want) {
			roles = append(roles, uid)
		}
	}
	c.mu.RUnlock()
	slices.Sort(roles)
	return roles
}

// Owned returns the organizations on which the caller holds the owner role, sorted. It returns none if the token is
// narrowed to capabilities without groups.create. It returns fault.Unauthenticated if there is no caller.
func (c *Checker) Owned(ctx context.Context) (owned []resource.UID, _ error) {
	caller, err := c.caller(ctx)
	if err != nil || caller.Caps != nil && !caller.Caps.Has(resource.GroupsCreate) {
		return nil, err
	}
	if owned = c.owned(&caller); len(owned) > 0 {
		c.allow(ctx, ownership{})
	}
	return owned, nil
}

// owned returns the organizations on which a caller holds the owner role, within the scopes of the token, sorted.
func (c *Checker) owned(caller *Caller) (owned []resource.UID) {
	c.mu.RLock()
	for group, role := range c.index.active(caller.Identity) {
		if group.IsRoot() && c.index.roles.uids[role] == resource.OwnerRole && caller.inScope(group) {
			owned = append(owned, group)
		}
	}
	c.mu.RUnlock()
	slices.Sort(owned)
	return owned
}

// Tenant returns the key under which the work for the caller of a request is limited. See TenantOf.
func (c *Checker) Tenant(ctx context.Context) resource.Tenant {
	caller, _ := CallerFrom(ctx)
	return c.TenantOf(ctx, caller)
}

// TenantOf returns the key under which the work for a caller is limited: the tenant of the caller's home, or the caller
// itself if it has none. So an organization has no greater share because it has many people. See store.DB.Tenant.
func (c *Checker) TenantOf(ctx context.Context, caller Caller) resource.Tenant {
	home, err := c.Home(ctx, caller)
	if err != nil || home == "" {
		home = caller.Identity
	}
	return c.store.Tenant(ctx, home)
}

// Home returns the group to which a caller belongs: the group of a workload, or the group whose identity provider or
// account a person has signed in with. It returns "" for a person who signed in otherwise.
func (c *Checker) Home(ctx context.Context, caller Caller) (resource.UID, error) {
	switch {
	case !caller.Identity.IsRoot():
		return caller.Identity.Parent(), nil
	case caller.Voucher != "":
		return caller.Voucher.Provider().Parent(), nil
	case caller.Session == "":
		return "", nil
	}
	if home, ok := c.homes.Get(caller.Session); ok {
		return home, nil
	}
	home, err := c.store.SessionHome(ctx, caller.Session)
	if err == nil && home != "" {
		c.homes.Add(caller.Session, home) // the home of a session never changes
	}
	return home, err
}

// Suspended reports whether a directory has deactivated an identity, whose grants have no effect then.
func (c *Checker) Suspended(identity resource.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.isSuspended(&Caller{Identity: identity})
}

// isSuspended reports whether the identity of a caller, or an identity through which it was assumed, is suspended.
func (c *Checker) isSuspended(caller *Caller) bool {
	if _, ok := c.suspended[caller.Identity]; ok {
		return true
	}
	for act := caller.Act; act != nil; act = act.Act {
		if _, ok := c.suspended[resource.UID(act.Subject)]; ok && act.Issuer == c.Issuer {
			return true
		}
	}
	return false
}

// Revoked returns the reason why the token of a caller is void, or "" if the token is valid. A token is void if its
// identity, or an identity through which it was assumed, was deleted after the token was issued; if its session has
// ended; or if the trust settings of the provider that vouched for its person have changed. The issue time has whole
// seconds, so a token that was issued in the second of the deletion is void, too. A token is also void while the person
// behind it is suspended.
func (c *Checker) Revoked(caller Caller) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.revoked) == 0 && len(c.suspended) == 0 {
		return ""
	}
	if c.isSuspended(&caller) {
		return "the directory of the organization has deactivated the person behind this token"
	}
	if c.deleted(caller.Identity, caller.Issued) {
		return "the identity of this token has been deleted"
	}
	for act := caller.Act; act != nil; act = act.Act {
		if act.Issuer == c.Issuer && c.deleted(resource.UID(act.Subject), caller.Issued) {
			return "an identity through which this token was assumed has been deleted"
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

// Disabled reports whether a provider was disabled after a time.
func (c *Checker) Disabled(provider resource.UID, since time.Time) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.deleted(resource.DisabledSubject(provider), since)
}

// deleted reports whether an identity was deleted after a token was issued.
func (c *Checker) deleted(identity resource.UID, issued time.Time) bool {
	until, ok := c.revoked[identity]
	return ok && !issued.After(until)
}

// caller makes sure that the index is up to date, and returns the caller of the request.
func (c *Checker) caller(ctx context.Context) (Caller, error) {
	caller, err := RequireCaller(ctx)
	if err != nil {
		return caller, err
	}
	return caller, c.EnsureCurrent(ctx)
}

// missing returns the capabilities of want that the caller does not hold on target at least until a time.
func (c *Checker) missing(
	caller *Caller, want resource.Capabilities, target resource.UID, until uint32,
) resource.Capabilities {
	return c.check(caller, want, target, until, false)
}

// check returns the same capabilities as missing. If use is true, it also records which grants were used.
func (c *Checker) check(
	caller *Caller, want resource.Capabilities, target resource.UID, until uint32, use bool,
) resource.Capabilities {
	if !caller.inScope(target) {
		return want
	}
	if caller.Caps != nil {
		if lacking := want.Without(*caller.Caps); lacking != (resource.Capabilities{}) {
			return lacking
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.check(caller.Identity, target, want, until, use)
}

// reach returns the groups on which the caller holds want, unsorted. A group may be below another one. If limit is not
// negative, reach stops when it has found that many groups.
func (c *Checker) reach(caller *Caller, want resource.Capability, limit int) []resource.UID {
	if caller.Caps != nil && !caller.Caps.Has(want) {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var groups []resource.UID
	h := c.index.identities[caller.Identity]
	for i := range h.grants {
		g := h.grants[i].grant
		if !c.index.allowed[g.role].Has(want) || !c.index.isActive(g, currently) {
			continue
		}
		parts := caller.Within(c.index.groups.uids[g.group])
		if groups = append(groups, parts...); c.recording && len(parts) > 0 {
			c.index.note(caller.Identity, h, usedGrant{i, resource.NewCapabilities(want)}, 0)
		}
		if limit >= 0 && len(groups) >= limit {
			break
		}
	}
	return groups
}
