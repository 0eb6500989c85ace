package authz

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/access"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
)

// A request has the caller of a request and the decisions that allowed it. It implements access.Access: a write of the
// request is committed only if all these decisions are still right.
type request struct {
	caller Caller

	mu        sync.Mutex
	checker   *Checker // nil until the token or a decision was checked
	decisions []decision
	places    map[any]int // index of each decision in decisions, by its subject
	recorded  int         // number of changes of decisions
	repeated  repetition  // the last successful one
}

// A repetition says when all decisions of a request were repeated, with which result.
type repetition struct {
	recorded int              // request.recorded at that time
	position replica.Position // position of the index at that time
	basis    access.Basis
}

// A decision is the reason for which a part of a request was allowed. A newer decision replaces an older one with the
// same subject.
type decision interface {
	// subject returns a comparable value.
	subject() any

	// repeat returns an error if the decision would now be another one.
	repeat(c *Checker, caller *Caller) error

	// basis adds the names on which the decision depends, except the caller, to b. The index must be locked.
	basis(x *index, caller *Caller, b *access.Basis)
}

// WithCaller returns a context in which c is the caller. Writes in this context depend on the access of the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	r := &request{caller: c, checker: c.checker}
	return access.With(context.WithValue(ctx, callerKey{}, r), r)
}

// WithSession returns a context whose writes depend on a session. They are committed only if the session still exists.
// The person of the session does not become the caller.
func (c *Checker) WithSession(ctx context.Context, n resource.Session) context.Context {
	return access.With(ctx, &request{checker: c, caller: Caller{
		Identity: n.Identity, Act: n.Act, Session: n.ID, Voucher: n.Voucher, Issued: n.CreateTime,
	}})
}

// WithMaker returns a context whose writes depend on the decision that maker, who need not be the caller, holds
// everything that an identity holds. They are committed only if the decision is still right. WithMaker returns the
// errors of RequireBecomeBy.
func (c *Checker) WithMaker(ctx context.Context, maker Caller, identity resource.UID) (context.Context, error) {
	if err := c.RequireBecomeBy(ctx, maker, identity); err != nil {
		return nil, err
	}
	r := &request{caller: maker, checker: c}
	if err := c.RequireBecome(context.WithValue(ctx, callerKey{}, r), identity); err != nil {
		return nil, err
	}
	return access.With(ctx, r), nil
}

// CallerFrom returns the caller of a request. It returns false before authentication.
func CallerFrom(ctx context.Context) (Caller, bool) {
	r, ok := ctx.Value(callerKey{}).(*request)
	if !ok {
		return Caller{}, false
	}
	return r.caller, true
}

// Admit returns the caller of a token that was verified, or fault.Unauthenticated if the token is void.
func (c *Checker) Admit(ctx context.Context, caller Caller) (Caller, error) {
	if err := c.EnsureCurrent(ctx); err != nil {
		return Caller{}, err
	}
	if err := c.refuseRevoked(&caller); err != nil {
		return Caller{}, err
	}
	caller.checker = c
	return caller, nil
}

// refuseRevoked returns fault.Unauthenticated if the token of a caller is void.
func (c *Checker) refuseRevoked(caller *Caller) error {
	if why := c.Revoked(*caller); why != "" {
		return fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
	}
	return nil
}

// allow records a decision that allows the request of a context.
func (c *Checker) allow(ctx context.Context, d decision) {
	r, ok := ctx.Value(callerKey{}).(*request)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checker = c
	subject := d.subject()
	i, ok := r.places[subject]
	switch {
	case !ok:
		if r.places == nil {
			r.places = map[any]int{}
		}
		r.places[subject] = len(r.decisions)
		r.decisions = append(r.decisions, d)
	case subject == any(d): // the same decision again
		return
	default:
		r.decisions[i] = d
	}
	r.recorded++
}

// Recheck implements access.Access. It repeats the decisions only if a change may have another result, because streams
// call it for each message.
func (r *request) Recheck() (b access.Basis, _ error) {
	r.mu.Lock()
	c, last, recorded := r.checker, r.repeated, r.recorded
	r.mu.Unlock()
	if c == nil {
		return b, nil
	}
	before := c.position() // read first: what is decided below considers at least this revision
	if last.recorded == recorded && last.position == before && last.basis.End.IsZero() && last.basis.Subjects != nil {
		return last.basis, c.unlessReplaced(before)
	}
	r.mu.Lock()
	decisions, recorded := slices.Clone(r.decisions), r.recorded
	r.mu.Unlock()
	b, err := c.repeat(&r.caller, decisions)
	b.Revision = before.Revision
	if err == nil {
		err = c.unlessReplaced(before)
	}
	if err == nil {
		r.mu.Lock()
		r.repeated = repetition{recorded, before, b}
		r.mu.Unlock()
	}
	return b, err
}

// repeat repeats decisions about a caller. It returns an error if one of them would now be another one.
func (c *Checker) repeat(caller *Caller, decisions []decision) (b access.Basis, _ error) {
	if err := c.refuseRevoked(caller); err != nil {
		return b, err
	}
	for _, d := range decisions {
		if err := d.repeat(c, caller); err != nil {
			return b, err
		}
	}
	b.Subjects = c.subjects(caller)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, d := range decisions {
		d.basis(c.index, caller, &b)
	}
	return b, nil
}

// unlessReplaced returns access.ErrChanged if the database has another history than the index had at a position,
// because revisions of two histories cannot be compared.
func (c *Checker) unlessReplaced(p replica.Position) error {
	if c.follow.history.Load() != p.History || !c.sameHistory() {
		return access.ErrChanged
	}
	return nil
}

// EnsureCurrent implements access.Access.
func (r *request) EnsureCurrent(ctx context.Context) error {
	r.mu.Lock()
	c := r.checker
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.EnsureCurrent(ctx)
}

// Refresh implements access.Access.
func (r *request) Refresh(ctx context.Context) error {
	r.mu.Lock()
	c := r.checker
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	if !c.shared {
		return c.EnsureCurrent(ctx)
	}
	if err := c.poll(ctx); err != nil && ctx.Err() == nil {
		return fault.Outage("the database", err)
	}
	return ctx.Err()
}

// subjects returns the names whose revocation makes the token of a caller void: see Revoked.
func (c *Checker) subjects(caller *Caller) []resource.UID {
	names := []resource.UID{caller.Identity}
	for act := caller.Act; act != nil; act = act.Act {
		if act.Issuer == c.Issuer {
			names = append(names, resource.UID(act.Subject))
		}
	}
	if caller.Session != "" {
		names = append(names, resource.SessionSubject(caller.Session))
	}
	if caller.Voucher != "" {
		names = append(names, resource.VoucherSubject(caller.Voucher))
	}
	return names
}

// A requirement is the decision that the caller holds capabilities on a target, at least until a time.
type requirement struct {
	want   resource.Capabilities
	target resource.UID
	until  uint32
}

func (r requirement) repeat(c *Checker, caller *Caller) error {
	return c.denyUnless(caller, r.want, r.target, r.until, false)
}

func (r requirement) basis(x *index, caller *Caller, b *access.Basis) {
	x.addGrantsOn(b, caller.Identity, r.target)
}

func (r requirement) subject() any { return r }

// A reached is the decision that the caller holds a capability on groups: the ones that Reach returned, or any group
// if groups is nil.
type reached struct {
	want   resource.Capability
	groups []resource.UID
}

func (r reached) repeat(c *Checker, caller *Caller) error {
	limit := -1
	if r.groups == nil {
		limit = 1
	}
	reach := c.reach(caller, r.want, limit)
	if r.groups == nil && len(reach) == 0 {
		return fault.Denied(r.want.String(), "any group")
	}
	for _, g := range r.groups {
		if !slices.ContainsFunc(reach, func(top resource.UID) bool { return top.Covers(g) }) {
			return fault.Denied(r.want.String(), string(g))
		}
	}
	return nil
}

func (r reached) basis(x *index, caller *Caller, b *access.Basis) {
	x.addGrants(b, caller.Identity)
}

func (r reached) subject() any {
	type subject struct {
		want resource.Capability
		any  bool
	}
	return subject{r.want, r.groups == nil}
}

// ownership is the decision that the caller owns an organization.
type ownership struct{}

func (ownership) repeat(c *Checker, caller *Caller) error {
	if len(c.owned(caller)) == 0 {
		return fault.Denied(resource.GroupsCreate.String(), "any organization")
	}
	return nil
}

func (ownership) basis(x *index, caller *Caller, b *access.Basis) {
	x.addGrants(b, caller.Identity)
}

func (ownership) subject() any { return ownership{} }

// holding is the decision that the caller has certain grants.
type holding struct{ grants []Grant }

func (h holding) repeat(c *Checker, caller *Caller) error {
	grants := c.GrantsOf(caller.Identity)
	for _, before := range h.grants {
		if !slices.ContainsFunc(grants, func(g Grant) bool { return g.Group == before.Group && g.Role == before.Role }) {
			return fault.New(fault.PermissionDenied, "Permission denied: you no longer hold the role %s on %s",
				before.Role, before.Group)
		}
	}
	return nil
}

func (holding) basis(x *index, caller *Caller, b *access.Basis) {
	x.addGrants(b, caller.Identity)
}

func (holding) subject() any {
	type subject struct{}
	return subject{}
}

// becoming is the decision that the caller holds everything that identities hold: identity, and the identities that
// can be assumed through it.
type becoming struct {
	identity  resource.UID
	assumable []resource.UID
}

func (d becoming) repeat(c *Checker, caller *Caller) error {
	return c.denyBecoming(caller, d.assumable)
}

func (d becoming) basis(x *index, caller *Caller, b *access.Basis) {
	b.Subjects = append(b.Subjects, d.assumable...)
	x.addGrants(b, caller.Identity)
	for _, identity := range d.assumable {
		x.addGrants(b, identity)
	}
}

func (d becoming) subject() any {
	type subject struct{ identity resource.UID }
	return subject{d.identity}
}

// addGrantsOn adds the grants of an identity on target and its ancestors to a basis.
func (x *index) addGrantsOn(b *access.Basis, identity, target resource.UID) {
	grants := x.identities[identity].grants
	for _, group := range append(target.Ancestors(), target) {
		key := keyOf(group)
		for k := first(grants, key); k < len(grants) && grants[k].key == key; k++ {
			x.addGrant(b, grants[k].grant)
		}
	}
}

// addGrants adds all grants of an identity to a basis.
func (x *index) addGrants(b *access.Basis, identity resource.UID) {
	for _, g := range x.identities[identity].grants {
		x.addGrant(b, g.grant)
	}
}

// addGrant adds the role and the end of a grant to a basis, unless the grant has ended.
func (x *index) addGrant(b *access.Basis, g grant) {
	b.Roles = appendNew(b.Roles, x.roles.uids[g.role])
	if g.end != never && x.isActive(g, currently) {
		b.Until(time.Unix(int64(g.end), 0))
	}
}

// appendNew adds a role to roles unless they contain it.
func appendNew(roles []resource.UID, role resource.UID) []resource.UID {
	if slices.Contains(roles, role) {
		return roles
	}
	return append(roles, role)
}
