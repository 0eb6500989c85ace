package iam

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// The caller's present capabilities decide what the caller may see of the past: a past binding on a group is visible to
// callers who hold role_bindings.list on the group now. A deleted group still has its UID and so its ancestors. Its
// bindings are visible to callers who hold the capability on an ancestor.

// CheckAccessAt does what CheckAccess does for a time in the past, or for the present if asOf is zero. For the past, it
// returns bindings only on groups whose bindings the caller may see now, even if the caller asks about their own
// identity.
func (s *Service) CheckAccessAt(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, asOf time.Time,
) (Access, error) {
	if asOf.IsZero() {
		return s.CheckAccess(ctx, identity, want, target)
	}
	if _, err := s.mayAsk(ctx, identity, target); err != nil {
		return Access{}, err
	}
	if err := s.past.RequirePast(ctx, "as_of", asOf); err != nil {
		return Access{}, err
	}
	allowed, err := s.authz.HeldAt(ctx, identity, want, target, asOf)
	if err != nil {
		return Access{}, err
	}
	seen, incomplete := s.visibleAncestors(ctx, target, false)
	q := grantlog.Query{At: asOf, Groups: seen, Identity: identity}
	got, err := s.pastBindings(ctx, q, want, page.Request{Size: maxReasons, Order: grantlog.BindingList.Default})
	return Access{Page: got, Allowed: allowed, Incomplete: incomplete}, err
}

// pastHolders returns a page of the bindings that gave a capability on a resource at a time in the past.
func (s *Service) pastHolders(
	ctx context.Context, want resource.Capability, target resource.UID, asOf time.Time, req page.Request,
) (Access, error) {
	if err := s.past.RequirePast(ctx, "as_of", asOf); err != nil {
		return Access{}, err
	}
	seen, incomplete := s.visibleAncestors(ctx, target, false)
	got, err := s.pastBindings(ctx, grantlog.Query{At: asOf, Groups: seen}, want, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// pastBindings returns a page of the bindings that a query selects and whose roles had the capability want at that
// time. If want is 0, it returns the bindings of all roles.
func (s *Service) pastBindings(
	ctx context.Context, q grantlog.Query, want resource.Capability, req page.Request,
) (none page.Page[resource.BoundRole], _ error) {
	roles, counts, err := s.past.RolesHeldAt(ctx, q)
	if err != nil {
		return none, err
	}
	total := int64(0)
	for _, r := range roles {
		if want == 0 || r.Capabilities.Has(want) {
			q.Roles = append(q.Roles, r.UID)
			total += counts[r.UID]
		}
	}
	if total == 0 {
		return none, nil
	}
	got, err := s.past.PastBindings(ctx, q, req)
	got.Total = total
	s.redactAll(ctx, got.Items)
	for i := range got.Items {
		got.Items[i].Deactivated = false // the caller asks about another time
	}
	return got, err
}

// A PastFilter selects the bindings that were active on Place or above it, the bindings of Identity, or, if both are
// set, the bindings of Identity on Place or above it.
type PastFilter struct {
	Place    resource.UID `json:"place,omitempty"`
	Identity resource.UID `json:"identity,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

// ListPastBindings returns a page of the bindings that were active at a time, on groups on which the caller holds
// role_bindings.list now. If the filter has a place, the caller needs the capability there. A page token replaces
// fields that are missing in the filter.
func (s *Service) ListPastBindings(ctx context.Context, f PastFilter, p page.Params) (Access, error) {
	f, req, err := page.Resume(s.pages, grantlog.BindingList, f, p)
	if err != nil {
		return Access{}, err
	}
	q := grantlog.Query{At: f.At, Identity: f.Identity}
	var incomplete bool
	switch {
	case f.Place != "":
		if err := s.authz.Require(ctx, resource.RoleBindingsList, f.Place); err != nil {
			return Access{}, err
		}
		q.Groups, incomplete = s.visibleAncestors(ctx, f.Place, false)
	case f.Identity != "":
		if q.Under, err = s.authz.Reach(ctx, resource.RoleBindingsList); err != nil {
			return Access{}, err
		}
	default:
		return Access{}, fault.Field("place_uid", "is required unless identity_uid is set")
	}
	if f.At.IsZero() {
		return Access{}, fault.Field("as_of", "is required")
	}
	if err := s.past.RequirePast(ctx, "as_of", f.At); err != nil {
		return Access{}, err
	}
	if f.Place == "" && len(q.Under) == 0 {
		return Access{}, nil // the caller may see no bindings
	}
	got, err := s.pastBindings(ctx, q, 0, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// A PastGroup is the state of a group at a time in the past.
type PastGroup = grantlog.PastGroup

// ListPastGroups returns a page of the groups that were direct children of parent at a time in the past. The caller
// needs groups.list on parent now.
func (s *Service) ListPastGroups(
	ctx context.Context, parent resource.UID, asOf time.Time, p page.Params,
) (none page.Page[PastGroup], _ error) {
	f, req, err := page.Resume(s.pages, grantlog.GroupList, PastFilter{Place: parent, At: asOf}, p)
	if err != nil {
		return none, err
	}
	if err := s.authz.Require(ctx, resource.GroupsList, f.Place); err != nil {
		return none, err
	}
	if f.At.IsZero() {
		return none, fault.Field("as_of", "is required")
	}
	if err := s.past.RequirePast(ctx, "as_of", f.At); err != nil {
		return none, err
	}
	got, err := s.past.PastGroups(ctx, f.At, f.Place, req)
	if err != nil {
		return none, err
	}
	return page.Finish(s.pages, req, got), nil
}

// A DiffFilter selects the bindings that DiffAccess compares: the bindings that give access on Place and below it, or,
// without a place, all bindings that the caller may list.
type DiffFilter struct {
	From  time.Time    `json:"from,omitzero"`
	To    time.Time    `json:"to,omitzero"`
	Place resource.UID `json:"place,omitempty"`
}

// A GrantDiff is a role that an identity has gained or lost.
type GrantDiff = grantlog.GrantDiff

// A RoleDiff is a role whose capabilities have changed.
type RoleDiff = grantlog.RoleDiff

// A Diff is a page of the roles that identities gained and lost between two times. The first page also has the roles
// whose capabilities have changed.
type Diff struct {
	page.Page[GrantDiff]
	Roles      []RoleDiff
	Incomplete bool // whether there are groups above the place whose bindings the caller must not see
}

// DiffAccess returns a page of the roles that identities gained and lost between two times. If the filter has a place,
// the caller needs role_bindings.list there. DiffAccess leaves out bindings on groups on which the caller does not hold
// that capability. A page token replaces fields that are missing in the filter.
func (s *Service) DiffAccess(ctx context.Context, f DiffFilter, p page.Params) (Diff, error) {
	f, req, err := page.Resume(s.pages, grantlog.DiffList, f, p)
	if err != nil {
		return Diff{}, err
	}
	var out Diff
	q := grantlog.DiffQuery{From: f.From, To: f.To}
	if f.Place != "" {
		if err := s.authz.Require(ctx, resource.RoleBindingsList, f.Place); err != nil {
			return Diff{}, err
		}
		q.Under = []resource.UID{f.Place}
		q.Groups, out.Incomplete = s.visibleAncestors(ctx, f.Place, false)
	} else if q.Under, err = s.authz.Reach(ctx, resource.RoleBindingsList); err != nil {
		return Diff{}, err
	}
	if err := s.checkDiff(ctx, f); err != nil {
		return Diff{}, err
	}
	if len(q.Under) == 0 {
		return out, nil
	}
	got, err := s.past.DiffGrants(ctx, q, req)
	if err != nil {
		return Diff{}, err
	}
	for i := range got.Items {
		got.Items[i].BoundRole = s.Redact(ctx, got.Items[i].BoundRole)
		got.Items[i].Deactivated = false
	}
	out.Page = page.Finish(s.pages, req, got)
	if req.After == nil {
		out.Roles, err = s.roleDiffs(ctx, q)
	}
	return out, err
}

// checkDiff checks the times of a filter.
func (s *Service) checkDiff(ctx context.Context, f DiffFilter) error {
	var bad []fault.Violation
	if f.From.IsZero() {
		bad = append(bad, fault.Violation{Subject: "from_time", Description: "is required"})
	}
	if f.To.IsZero() {
		bad = append(bad, fault.Violation{Subject: "to_time", Description: "is required"})
	}
	if len(bad) == 0 && !f.From.Before(f.To) {
		bad = append(bad, fault.Violation{Subject: "to_time", Description: "must be after from_time"})
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	if err := s.past.RequirePast(ctx, "to_time", f.To); err != nil {
		return err
	}
	return s.past.RequirePast(ctx, "from_time", f.From)
}

// roleDiffs returns the changed roles that the caller may see now: managed roles, and roles of groups on which the
// caller holds roles.list.
func (s *Service) roleDiffs(ctx context.Context, q grantlog.DiffQuery) (seen []RoleDiff, _ error) {
	var orgs []resource.UID
	for _, uid := range q.Under {
		orgs = append(orgs, uid.Root())
	}
	changed, err := s.past.DiffRoles(ctx, q.From, q.To, orgs)
	for _, r := range changed {
		if r.UID.IsRoot() || s.authz.Require(ctx, resource.RolesList, r.UID) == nil {
			seen = append(seen, r)
		}
	}
	return seen, err
}
