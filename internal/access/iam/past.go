package iam

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// What was granted in the past is told to those who may see it now: a binding on a group to whoever holds
// role_bindings.list there now. A group that is gone keeps its place below others, so that is whoever holds the
// capability above it.

// CheckAccessAt is CheckAccess as of a time, or of now if that is zero. As of a time, callers see of their own bindings,
// too, only those on groups whose bindings they may see now.
func (s *Service) CheckAccessAt(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, at time.Time,
) (Access, error) {
	if at.IsZero() {
		return s.CheckAccess(ctx, identity, want, target)
	}
	if _, err := s.mayAsk(ctx, identity, target); err != nil {
		return Access{}, err
	}
	if err := s.past.RequirePast(ctx, "as_of", at); err != nil {
		return Access{}, err
	}
	allowed, err := s.authz.HeldAt(ctx, identity, want, target, at)
	if err != nil {
		return Access{}, err
	}
	seen, incomplete := s.seenFrom(ctx, target, false)
	q := grantlog.Query{At: at, Groups: seen, Identity: identity}
	got, err := s.pastBindings(ctx, q, want, page.Request{Size: maxReasons, Order: grantlog.BindingList.Default})
	return Access{Page: got, Allowed: allowed, Incomplete: incomplete}, err
}

// pastHolders returns a page of the bindings that gave a capability on a resource at a time.
func (s *Service) pastHolders(
	ctx context.Context, want resource.Capability, target resource.UID, at time.Time, req page.Request,
) (Access, error) {
	if err := s.past.RequirePast(ctx, "as_of", at); err != nil {
		return Access{}, err
	}
	seen, incomplete := s.seenFrom(ctx, target, false)
	got, err := s.pastBindings(ctx, grantlog.Query{At: at, Groups: seen}, want, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// pastBindings returns a page of the bindings that a query asks for, of roles that had a capability then, or of all
// if that is 0.
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
	return got, err
}

// A PastFilter says which bindings ListPastBindings returns: those that counted on Place, made there or above it; those
// of Identity; or those that are both.
type PastFilter struct {
	Place    resource.UID `json:"place,omitempty"`
	Identity resource.UID `json:"identity,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

// ListPastBindings returns a page of the bindings that counted at a time, in the groups in which the caller holds
// role_bindings.list now. If there is a place, the caller needs it there. A page token has what is left out of the
// filter.
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
		q.Groups, incomplete = s.seenFrom(ctx, f.Place, false)
	case f.Identity != "":
		if q.Under, err = s.authz.Reach(ctx, resource.RoleBindingsList); err != nil {
			return Access{}, err
		}
	default:
		return Access{}, fault.Field("place_uid", "or identity_uid is required")
	}
	if f.At.IsZero() {
		return Access{}, fault.Field("as_of", "is required")
	}
	if err := s.past.RequirePast(ctx, "as_of", f.At); err != nil {
		return Access{}, err
	}
	if f.Place == "" && len(q.Under) == 0 {
		return Access{}, nil // of nothing
	}
	got, err := s.pastBindings(ctx, q, 0, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// A PastGroup is a group as it was at a time.
type PastGroup = grantlog.PastGroup

// ListPastGroups returns a page of the groups that were directly in another at a time. The caller needs groups.list on
// that one now.
func (s *Service) ListPastGroups(
	ctx context.Context, parent resource.UID, at time.Time, p page.Params,
) (none page.Page[PastGroup], _ error) {
	f, req, err := page.Resume(s.pages, grantlog.GroupList, PastFilter{Place: parent, At: at}, p)
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

// A DiffFilter says what DiffAccess compares: what counts on Place and below it, or, without a place, all bindings that
// the caller may list.
type DiffFilter struct {
	From  time.Time    `json:"from,omitzero"`
	To    time.Time    `json:"to,omitzero"`
	Place resource.UID `json:"place,omitempty"`
}

// A GrantDiff is a role that somebody has gained or lost.
type GrantDiff = grantlog.GrantDiff

// A RoleDiff is a role that allows something else than before.
type RoleDiff = grantlog.RoleDiff

// A Diff is a page of who has gained and lost a role between two times. Roles that allow something else than before are
// on the first page.
type Diff struct {
	page.Page[GrantDiff]
	Roles      []RoleDiff
	Incomplete bool // there are groups above the place whose bindings the caller must not see
}

// DiffAccess returns a page of who has gained and lost a role between two times. The caller needs role_bindings.list on
// the place, if there is one. Bindings on groups where the caller does not hold it are left out. A page token has what is
// left out of the filter.
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
		q.Groups, out.Incomplete = s.seenFrom(ctx, f.Place, false)
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
	}
	out.Page = page.Finish(s.pages, req, got)
	if req.After == nil {
		out.Roles, err = s.roleDiffs(ctx, q)
	}
	return out, err
}

// checkDiff checks the times of a comparison.
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

// roleDiffs returns the roles that a comparison is about and that the caller may see now: those of the service, and
// those of groups on which the caller holds roles.list.
func (s *Service) roleDiffs(ctx context.Context, q grantlog.DiffQuery) (seen []RoleDiff, _ error) {
	var orgs []resource.UID
	for _, uid := range q.Under {
		orgs = append(orgs, uid.Root())
	}
	all, err := s.past.DiffRoles(ctx, q.From, q.To, orgs)
	for _, r := range all {
		if r.UID.IsRoot() || s.authz.Require(ctx, resource.RolesList, r.UID) == nil {
			seen = append(seen, r)
		}
	}
	return seen, err
}
