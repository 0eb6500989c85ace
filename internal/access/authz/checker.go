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

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Checker decides whether a caller may act on a resource. It answers from memory, yet a binding that was
// created or removed counts from the moment the write returns, whichever replica has written it.
//
// If the database cannot be reached, so that other replicas may have made changes, methods that return an error
// return fault.Unavailable, and the others answer as if the caller held nothing.
type Checker struct {
	Issuer string // the address of our own issuer; set before use

	store *iamdb.Store
	past  *grantlog.Store
	log   *slog.Logger
	now   func() time.Time

	mu      sync.RWMutex // guards what is below; never held during I/O
	index   *index
	revoked map[resource.UID]time.Time // tokens issued until this time are void

	changed []func(identity resource.UID) // set before the first change

	recording bool // which grants are used; set before use

	follow follower
	behind atomic.Bool // a committed local change could not be read
	shared bool        // there may be other writers
}

// A Grant is a role that an identity holds on a group, and what it allows.
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
// bindings. The error names the first that is missing.
func (c *Checker) RequireAll(ctx context.Context, want resource.Capabilities, target resource.UID) error {
	return c.requireUntil(ctx, want, target, now)
}

// RequireLasting is RequireAll for what gives others the capabilities until a time, or for ever if that is zero: it
// takes grants that do not end before. So nobody gives for longer what they have for a time.
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
		err = c.denyMissing(&caller, want, target, until)
	}
	endSpan(span, err)
	return err
}

// denyMissing returns the error for capabilities that the caller lacks on target, or does not hold until a time.
func (c *Checker) denyMissing(caller *Caller, want resource.Capabilities, target resource.UID, until uint32) error {
	missing := c.check(caller, want, target, until, c.recording && until == now)
	if missing == (resource.Capabilities{}) {
		return nil
	}
	err := denial(missing, target)
	if until != now && c.missing(caller, missing, target, now) == (resource.Capabilities{}) {
		err.Message += " ends before what is to be given: give it an end that is no later"
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

// RequireRole checks that a role can be used in a group and that the caller holds its capabilities there, until a
// time, or for ever if that is zero. A role can be used in its own group and all below it, because whoever can change
// the role decides what it gives there. The error for another role names field.
func (c *Checker) RequireRole(ctx context.Context, group, role resource.UID, field string, until time.Time) error {
	if !role.IsRoot() && !role.Parent().Covers(group) {
		return fault.Field(field, "is neither a managed role nor one of this group or a group above it")
	}
	r, err := c.store.Role(ctx, role)
	if err != nil {
		return err
	}
	return c.RequireLasting(ctx, r.Capabilities, group, until)
}

// denial returns the error for missing capabilities, naming the first.
func denial(missing resource.Capabilities, target resource.UID) *fault.Error {
	var first resource.Capability // unnamed if a newer version stored the missing capability
	if all := missing.All(); len(all) > 0 {
		first = all[0]
	}
	return fault.Denied(first.String(), string(target))
}

// RequireAnywhere returns nil if the caller holds want on any group at all.
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
	return nil
}

// Reach returns the groups on which the caller holds want, sorted, none of
// them within another. It returns fault.Unauthenticated if there is no caller.
func (c *Checker) Reach(ctx context.Context, want resource.Capability) (_ []resource.UID, err error) {
	span := startSpan(ctx, resource.NewCapabilities(want))
	defer func() { endSpan(span, err) }()
	caller, err := c.caller(ctx)
	if err != nil {
		return nil, err
	}
	groups := c.reach(&caller, want, -1)
	slices.Sort(groups) // a group sorts directly before those it covers
	var last resource.UID
	return slices.DeleteFunc(groups, func(g resource.UID) bool {
		if last.Covers(g) {
			return true
		}
		last = g
		return false
	}), nil
}

// GrantsOf returns the grants of an identity that count now, sorted by group and role.
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

// Holds reports whether an identity holds want on target or above it.
func (c *Checker) Holds(identity resource.UID, want resource.Capability, target resource.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.missing(identity, target, resource.NewCapabilities(want), now) == resource.Capabilities{}
}

// HoldsAll reports whether an identity holds all of some capabilities on a resource.
func (c *Checker) HoldsAll(identity resource.UID, want resource.Capabilities, target resource.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.missing(identity, target, want, now) == resource.Capabilities{}
}

// EndOf returns when the last grant ends of those that a token could use: those of its identity that are not over
// and within its narrowing. It returns the zero time if one of them has no end, or there is none.
func (c *Checker) EndOf(identity resource.UID, to resource.Narrowing) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	token := Caller{Scopes: to.Scopes}
	last := uint32(0)
	for _, g := range c.index.notOver(identity) {
		allowed := c.index.allowed[g.role]
		if to.Caps != nil && allowed.Without(*to.Caps) == allowed || len(token.Within(c.index.groups.uids[g.group])) == 0 {
			continue
		}
		last = max(last, g.end)
	}
	if last == 0 || last == never {
		return time.Time{}
	}
	return time.Unix(int64(last), 0).UTC()
}

// Sees reports whether the caller holds want on target or above it, from memory alone. It reports false if that
// is in doubt. It never waits, so it can be asked inside of a transaction.
func (c *Checker) Sees(ctx context.Context, want resource.Capability, target resource.UID) bool {
	caller, ok := CallerFrom(ctx)
	return ok && c.current() && c.missing(&caller, resource.NewCapabilities(want), target, now) == resource.Capabilities{}
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

// OwnsAny reports whether the caller holds the owner role on an organization. A token narrowed to less than
// creating groups does not count. It returns fault.Unauthenticated if there is no caller.
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

// Revoked returns why the token of a caller is void: its identity, or one that it was assumed through, was
// deleted after it was issued; its session has ended; or the trust settings of the provider that vouched for
// its person have changed. Tokens are dated in whole seconds, so one issued in the second of the deletion is
// void too. It returns "" for a valid token.
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

// caller returns the caller once the index is known to be current.
func (c *Checker) caller(ctx context.Context) (Caller, error) {
	caller, err := RequireCaller(ctx)
	if err != nil {
		return caller, err
	}
	return caller, c.EnsureCurrent(ctx)
}

// missing returns the capabilities of want that the caller lacks on target, or does not hold until a time.
func (c *Checker) missing(
	caller *Caller, want resource.Capabilities, target resource.UID, until uint32,
) resource.Capabilities {
	return c.check(caller, want, target, until, false)
}

// check is missing, and notes which grants were used if use is true.
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

// reach returns the groups on which the caller holds want, unsorted and possibly within each other. If limit is
// not negative it stops once it has that many.
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
		if !c.index.allowed[g.role].Has(want) || !c.index.counts(g, now) {
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
