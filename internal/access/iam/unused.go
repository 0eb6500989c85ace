package iam

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The bounds and the default of UnusedFilter.Since.
const (
	minUnused     = time.Minute
	maxUnused     = 5 * 365 * 24 * time.Hour
	DefaultUnused = 90 * 24 * time.Hour
)

// An UnusedFilter selects unused resources.
type UnusedFilter struct {
	Kind  resource.UnusedKind `json:"kind,omitempty"`
	Since time.Duration       `json:"since,omitempty"` // shortest time without use; 0 means DefaultUnused
	UIDs  resource.UIDFilter  `json:"uids,omitzero"`
}

// An Unused is a resource that was not used for a time, or a role binding with capabilities that were not used. Only
// the field of its kind is set: Binding, Identity, Invite or Account.
type Unused struct {
	UID        resource.UID
	Binding    *resource.BoundRole
	Identity   *resource.Identity
	PullToken  bool // whether Identity is a pull token
	Invite     *resource.GroupInvite
	Account    *resource.AccountAssociation
	LastUse    time.Time             // zero if no use is recorded
	Used       resource.Capabilities // capabilities of Binding that were used
	Wider      resource.Capabilities // capabilities of Binding that were not used, by which it is too wide
	Suggestion resource.Info         // a smaller role that has all capabilities in Used; zero if there is none
	CreateTime time.Time
}

// UnusedPage is a page of unused resources. It can have fewer items than requested even if another page follows.
type UnusedPage struct {
	page.Page[Unused]
	RecordedSince time.Time // time at which the recording of use began
}

var unusedList = page.List{Kind: "unused", Fields: []string{"uid"}, Default: page.Order{Field: "uid"}}

// An unusedQuery selects a page of resources in groups and below them that were not used since the cutoff.
type unusedQuery struct {
	under  []resource.UID
	filter resource.Filter
	req    page.Request
	cutoff time.Time
}

// An unusedKind is a kind of resources that ListUnused can list, with the capability to list it.
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

// ListUnused returns a page of resources that were not used for a time, among the resources that the caller may list.
// It leaves out resources that are younger than that time. It returns no role bindings if the recording of their use
// began less than that time ago, because earlier uses are unknown.
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
	_, latest := s.store.Clock()
	got, err := kind.read(s, ctx, unusedQuery{under, resource.Filter{UIDs: f.UIDs}, req, latest.Add(-f.Since)})
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

// keep returns a page with the items for which unused returns true.
func keep[T any](p page.Page[T], unused func(T) (Unused, bool)) page.Page[Unused] {
	var kept []Unused
	for _, v := range p.Items {
		if u, ok := unused(v); ok {
			kept = append(kept, u)
		}
	}
	return page.With(p, kept)
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

// explainUnused redacts role bindings for the caller, and adds suggestions of smaller roles.
func (s *Service) explainUnused(ctx context.Context, bindings []Unused) error {
	candidates := map[resource.UID][]resource.Role{} // roles to suggest, by group
	for i := range bindings {
		u := &bindings[i]
		*u.Binding = s.Redact(ctx, *u.Binding)
		if err := s.suggest(ctx, u, candidates); err != nil {
			return err
		}
	}
	return nil
}

// A usageJudge decides which role bindings have unused capabilities.
type usageJudge struct {
	cutoff, recorded time.Time // cutoff: earlier uses do not count; recorded: when the recording of use began
	uses             map[resource.UID]map[resource.Capability]time.Time
	roles            map[resource.UID]resource.Capabilities
}

// read reads the uses and the roles of bindings.
func (j *usageJudge) read(ctx context.Context, s *Service, bindings []resource.BoundRole) (err error) {
	var uids, roles []resource.UID
	for _, b := range bindings {
		uids, roles = append(uids, b.UID), append(roles, b.Role)
	}
	if j.uses, err = s.past.UsesOf(ctx, uids); err != nil {
		return err
	}
	slices.Sort(roles)
	j.roles, err = s.store.CapabilitiesOf(ctx, slices.Compact(roles))
	return err
}

// unused returns the used and the unused capabilities of a binding. It returns false if all were used since the cutoff.
// It also returns false if the binding is not active now, was not active at the cutoff, or if its use was not recorded
// since the cutoff, because then nobody knows which capabilities were used.
func (j *usageJudge) unused(b resource.BoundRole) (u Unused, ok bool) {
	began := b.CreateTime
	if b.StartTime.After(began) {
		began = b.StartTime
	}
	if b.State(b.Now) != resource.BindingActive || began.After(j.cutoff) || j.recorded.After(j.cutoff) {
		return u, false
	}
	u = Unused{UID: b.UID, Binding: &b, CreateTime: b.CreateTime}
	for c, used := range j.uses[b.UID] {
		if used.After(u.LastUse) {
			u.LastUse = used
		}
		if !used.Before(j.cutoff) && j.roles[b.Role].Has(c) {
			u.Used.Add(c)
		}
	}
	u.Wider = j.roles[b.Role].Without(u.Used)
	return u, u.Wider != resource.Capabilities{}
}

// suggest finds the smallest role that has the used capabilities, among the roles that the caller sees and that can be
// bound on the group. candidates caches these roles by group.
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

// maxCandidates is the greatest number of roles that suggest and findHelp compare.
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
		u.PullToken = i.IsPullToken()
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

// unusedAssociations returns the associations whose identities no service has used.
func (s *Service) unusedAssociations(ctx context.Context, q unusedQuery) (none page.Page[Unused], _ error) {
	q.req.Order.Field = iamdb.AssociationList.Default.Field // an association has the uid of its group
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
