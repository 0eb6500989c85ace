package iam

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The bounds of the time for which something was not used.
const (
	minUnused     = time.Minute
	maxUnused     = 5 * 365 * 24 * time.Hour
	DefaultUnused = 90 * 24 * time.Hour
)

// pullTokens ends the issuer of the keys of pull tokens.
const pullTokens = "/pull-tokens"

// An UnusedFilter selects what is unused.
type UnusedFilter struct {
	Kind  resource.UnusedKind `json:"kind,omitempty"`
	Since time.Duration       `json:"since,omitempty"` // for which it was not used; 0 is DefaultUnused
	UIDs  resource.UIDFilter  `json:"uids,omitzero"`
}

// An Unused is something that was not used for a time, or, of a role binding, not all of it.
type Unused struct {
	UID        resource.UID
	Binding    *resource.BoundRole   // of a role binding
	Identity   *resource.Identity    // of an identity
	PullToken  bool                  // the identity is a pull token
	Invite     *resource.GroupInvite // of an invite
	Account    *resource.AccountAssociation
	LastUse    time.Time             // zero if there was none since it is recorded
	Used       resource.Capabilities // of a role binding: what was used in the time
	Wider      resource.Capabilities // what was not
	Suggestion resource.Info         // a smaller role that would have done, if there is one
	CreateTime time.Time
}

// UnusedPage is a page of what is unused, and since when use is recorded. A page may have fewer items than were asked for,
// and still be followed by others.
type UnusedPage struct {
	page.Page[Unused]
	RecordedSince time.Time
}

var unusedList = page.List{Kind: "unused", Fields: []string{"uid"}, Default: page.Order{Field: "uid"}}

// An unusedQuery asks for a page of what was not used since the cutoff, in groups and below them.
type unusedQuery struct {
	under  []resource.UID
	filter resource.Filter
	req    page.Request
	cutoff time.Time
}

// An unusedKind is a kind of what may be unused, with the capability that lists it.
type unusedKind struct {
	kind resource.UnusedKind
	list resource.Capability
	read func(*Service, context.Context, unusedQuery) (page.Page[Unused], error)
}

var unusedKinds = []unusedKind{
	{resource.UnusedBindings, resource.RoleBindingsList, (*Service).unusedBindings},
	{resource.UnusedIdentities, resource.IdentityList, (*Service).unusedIdentities},
	{resource.UnusedInvites, resource.GroupInvitesList, (*Service).unusedInvites},
	{resource.UnusedAssociations, resource.AccountAssociationsList, (*Service).unusedAssociations},
}

// ListUnused returns a page of what was not used for a time, among what the caller may list. What is younger than that
// is left out, and so are role bindings if their use is recorded for less: nobody knows.
func (s *Service) ListUnused(ctx context.Context, f UnusedFilter, p page.Params) (out UnusedPage, _ error) {
	if err := f.UIDs.Validate(); err != nil {
		return out, err
	}
	f, req, err := page.Resume(s.pages, unusedList, f, p)
	if err != nil {
		return out, err
	}
	if f.Since == 0 {
		f.Since = DefaultUnused
	}
	if f.Since < minUnused || f.Since > maxUnused {
		return out, fault.Field("since", "must be from a minute to five years")
	}
	i := slices.IndexFunc(unusedKinds, func(k unusedKind) bool { return k.kind == f.Kind })
	if i < 0 {
		return out, fault.Field("kind", "is required")
	}
	kind := unusedKinds[i]
	under, err := s.authz.Reach(ctx, kind.list)
	if err != nil {
		return out, err
	}
	_, now := s.store.Clock()
	got, err := kind.read(s, ctx, unusedQuery{under, resource.Filter{UIDs: f.UIDs}, req, now.Add(-f.Since)})
	if err == nil && f.Kind == resource.UnusedBindings {
		err = s.explainUnused(ctx, got.Items)
	}
	if err != nil {
		return out, err
	}
	out.Page = page.Finish(s.pages, req, got)
	out.RecordedSince, err = s.past.UsesRecordedSince(ctx)
	return out, err
}

// keep returns a page with what is unused of its items.
func keep[T any](p page.Page[T], unused func(T) (Unused, bool)) page.Page[Unused] {
	var some []Unused
	for _, v := range p.Items {
		if u, ok := unused(v); ok {
			some = append(some, u)
		}
	}
	return page.With(p, some)
}

func (s *Service) unusedBindings(ctx context.Context, q unusedQuery) (none page.Page[Unused], _ error) {
	got, err := s.store.Bindings(ctx, store.Reach{Under: q.under}, q.filter, q.req)
	if err != nil {
		return none, err
	}
	recorded, err := s.past.UsesRecordedSince(ctx)
	if err != nil {
		return none, err
	}
	j := usageJudge{cutoff: q.cutoff, recorded: recorded}
	if err := j.read(ctx, s, got.Items); err != nil {
		return none, err
	}
	return keep(got, j.unused), nil
}

// explainUnused removes from role bindings what the caller must not see of them, and adds the smaller roles that would have
// done.
func (s *Service) explainUnused(ctx context.Context, all []Unused) error {
	candidates := map[resource.UID][]resource.Role{} // by group
	for i := range all {
		u := &all[i]
		*u.Binding = s.Redact(ctx, *u.Binding)
		if err := s.suggest(ctx, u, candidates); err != nil {
			return err
		}
	}
	return nil
}

// A usageJudge decides which role bindings are unused, or wider than they are used.
type usageJudge struct {
	cutoff, recorded time.Time
	uses             map[resource.UID]map[resource.Capability]time.Time
	roles            map[resource.UID]resource.Capabilities
}

func (j *usageJudge) read(ctx context.Context, s *Service, all []resource.BoundRole) (err error) {
	var bindings, roles []resource.UID
	for _, b := range all {
		bindings, roles = append(bindings, b.UID), append(roles, b.Role)
	}
	if j.uses, err = s.past.UsesOf(ctx, bindings); err != nil {
		return err
	}
	slices.Sort(roles)
	j.roles, err = s.store.CapabilitiesOf(ctx, slices.Compact(roles))
	return err
}

// unused returns what of a binding was not used since the cutoff, if it counts, and did then, and use was recorded.
func (j *usageJudge) unused(b resource.BoundRole) (u Unused, ok bool) {
	began := b.CreateTime
	if b.StartTime.After(began) {
		began = b.StartTime
	}
	if b.State(b.Now) != resource.BindingActive || began.After(j.cutoff) || j.recorded.After(j.cutoff) {
		return u, false
	}
	u = Unused{UID: b.UID, Binding: &b, CreateTime: b.CreateTime}
	for c, at := range j.uses[b.UID] {
		if at.After(u.LastUse) {
			u.LastUse = at
		}
		if !at.Before(j.cutoff) && j.roles[b.Role].Has(c) {
			u.Used.Add(c)
		}
	}
	u.Wider = j.roles[b.Role].Without(u.Used)
	return u, u.Wider != resource.Capabilities{}
}

// suggest finds the smallest role that has what was used, among those that the caller sees and that can be used there.
func (s *Service) suggest(ctx context.Context, u *Unused, candidates map[resource.UID][]resource.Role) error {
	if u.Used == (resource.Capabilities{}) {
		return nil
	}
	group := u.Binding.Group()
	if _, known := candidates[group]; !known {
		roles, err := s.store.RolesUsableOn(ctx, group, maxCandidates)
		if err != nil {
			return err
		}
		candidates[group] = slices.DeleteFunc(roles, func(r resource.Role) bool {
			return !r.UID.IsRoot() && !s.authz.Sees(ctx, resource.RolesList, r.UID)
		})
	}
	best := u.Used.Len() + u.Wider.Len()
	for _, r := range candidates[group] {
		if n := r.Capabilities.Len(); n < best && u.Used.Without(r.Capabilities) == (resource.Capabilities{}) {
			best, u.Suggestion = n, resource.Info{UID: r.UID, Name: r.Name, Description: r.Description}
		}
	}
	return nil
}

// maxCandidates is how many roles of a group and those above it are compared.
const maxCandidates = 500

func (s *Service) unusedIdentities(ctx context.Context, q unusedQuery) (none page.Page[Unused], _ error) {
	got, err := s.store.Identities(ctx, store.Reach{Under: q.under}, q.filter, q.req)
	if err != nil {
		return none, err
	}
	return keep(got, func(i resource.Identity) (Unused, bool) {
		u := Unused{UID: i.UID, Identity: &i, CreateTime: i.CreateTime}
		if i.LastSeenTime.After(i.CreateTime) {
			u.LastUse = i.LastSeenTime
		}
		k := i.Relationship.StaticKeys
		u.PullToken = k != nil && strings.HasSuffix(k.Issuer, pullTokens)
		return u, i.CreateTime.Before(q.cutoff) && i.LastSeenTime.Before(q.cutoff)
	}), nil
}

func (s *Service) unusedInvites(ctx context.Context, q unusedQuery) (none page.Page[Unused], _ error) {
	got, err := s.store.Invites(ctx, store.Reach{Under: q.under}, q.filter, q.req)
	if err != nil {
		return none, err
	}
	uids := make([]resource.UID, len(got.Items))
	for i, v := range got.Items {
		uids[i] = v.UID
	}
	used, err := s.store.InvitesUsed(ctx, uids)
	if err != nil {
		return none, err
	}
	return keep(got, func(i resource.GroupInvite) (Unused, bool) {
		u := Unused{UID: i.UID, Invite: &i, CreateTime: i.CreateTime, LastUse: used[i.UID]}
		return u, i.CreateTime.Before(q.cutoff) && u.LastUse.Before(q.cutoff)
	}), nil
}

// unusedAssociations returns the associations through none of whose identities a service has come.
func (s *Service) unusedAssociations(ctx context.Context, q unusedQuery) (none page.Page[Unused], _ error) {
	q.req.Order.Field = iamdb.AssociationList.Default.Field // they go by the uid of their group
	got, err := s.store.Associations(ctx, store.Reach{Under: q.under}, q.filter, q.req)
	if err != nil {
		return none, err
	}
	var uids []resource.UID
	for _, a := range got.Items {
		for _, uid := range a.ServiceBindings {
			uids = append(uids, uid)
		}
	}
	seen, err := s.store.IdentitiesByUID(ctx, uids)
	if err != nil {
		return none, err
	}
	return keep(got, func(a resource.AccountAssociation) (Unused, bool) {
		u := Unused{UID: a.UID, Account: &a, CreateTime: a.CreateTime}
		for _, uid := range a.ServiceBindings {
			if i := seen[uid]; i.LastSeenTime.After(i.CreateTime) && i.LastSeenTime.After(u.LastUse) {
				u.LastUse = i.LastSeenTime
			}
		}
		return u, a.CreateTime.Before(q.cutoff) && u.LastUse.Before(q.cutoff)
	}), nil
}
