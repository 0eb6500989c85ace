package iam

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A DatedRequest is a request and the time at which it was read, by the clock that decides its state.
type DatedRequest struct {
	resource.AccessRequest
	Now time.Time
}

// CreateAccessRule lets a role be asked for on a group. The caller needs role_bindings.create there, and every
// capability of the role, without an end: a rule is a promise that others keep, or, for one that breaks glass, a grant.
func (s *Service) CreateAccessRule(
	ctx context.Context, parent resource.UID, r resource.AccessRule,
) (resource.AccessRule, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return r, err
	}
	if r.Approvers == 0 && !r.BreakGlass {
		r.Approvers = 1
	}
	if r.BreakGlass {
		r.ReasonRequired = true
	}
	if err := r.Validate(); err != nil {
		return r, err
	}
	if err := s.authz.RequireRole(ctx, parent, r.Role, "role_uid", forever); err != nil {
		return r, err
	}
	if q := r.Requester; q != "" && !q.IsRoot() && !q.Parent().Covers(parent) {
		return r, fault.Field("requester_role_uid", "is neither a managed role nor one of this group or a group above it")
	}
	r.UID, r.CreateTime = parent.NewChild(), s.now()
	r.UpdateTime = r.CreateTime
	return r, s.store.InsertAccessRule(ctx, r)
}

// DeleteAccessRule ends a rule. The caller needs role_bindings.delete on it.
func (s *Service) DeleteAccessRule(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.RoleBindingsDelete, uid, s.store.DeleteAccessRule)
}

// ListAccessRules returns a page of the rules on which the caller holds groups.list: whoever sees a group sees what
// can be asked for.
func (s *Service) ListAccessRules(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.AccessRule], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.RuleList, resource.GroupsList, f, p, s.store.AccessRules)
}

// RequestAccessTo asks for a role on a group, for the caller, by a rule of the group. It returns
// fault.PermissionDenied if no rule lets the caller ask, whether or not there is such a group or role. A token that is
// narrowed cannot ask, because what is granted would not be narrowed.
func (s *Service) RequestAccessTo(
	ctx context.Context, group resource.UID, r resource.AccessRequest,
) (none DatedRequest, _ error) {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return none, err
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return none, err
	}
	if err := r.Validate(); err != nil {
		return none, err
	}
	rule, err := s.ruleFor(ctx, caller, group, r)
	if err != nil {
		return none, err
	}
	if r.Role == resource.OwnerRole && !caller.Identity.IsRoot() && caller.Identity.Root() != group.Root() {
		return none, fault.Field("role_uid", "is not for a workload of another organization, which can delete it")
	}
	if r.Duration > rule.MaxDuration {
		return none, fault.Field("duration", "must be at most %s by the rule of this group", rule.MaxDuration)
	}
	if rule.ReasonRequired && strings.TrimSpace(r.Reason) == "" {
		return none, fault.Field("reason", "is required by the rule of this group")
	}
	r.UID, r.Rule, r.Identity, r.Via = group.NewChild(), rule.UID, caller.Identity, s.assumedThrough(caller)
	r.State, r.Approvers, r.CreateTime = resource.AccessPending, rule.Approvers, s.now()
	r.UpdateTime = r.CreateTime
	if r.BreakGlass {
		r, err = s.store.TakeAccess(ctx, r)
	} else {
		err = s.store.InsertAccessRequest(ctx, r)
	}
	return s.dated(r), err
}

// ruleFor returns the rule by which a caller may ask for a role, the one with the longest time if there are several.
func (s *Service) ruleFor(
	ctx context.Context, caller authz.Caller, group resource.UID, r resource.AccessRequest,
) (best resource.AccessRule, _ error) {
	rules, err := s.store.AccessRulesOf(ctx, group, r.Role)
	if err != nil {
		return best, err
	}
	held := s.authz.GrantsOf(caller.Identity)
	for _, rule := range rules {
		if rule.BreakGlass == r.BreakGlass && rule.MaxDuration > best.MaxDuration && mayAsk(rule, group, held) {
			best = rule
		}
	}
	if best.UID == "" {
		return best, fault.New(fault.PermissionDenied, "Permission denied: no access rule of %s lets you ask for this role", group)
	}
	return best, nil
}

// mayAsk reports whether somebody with these grants may ask by a rule of a group.
func mayAsk(rule resource.AccessRule, group resource.UID, held []authz.Grant) bool {
	return slices.ContainsFunc(held, func(g authz.Grant) bool {
		if rule.Requester == "" {
			return g.Group.Root() == group.Root()
		}
		return g.Role == rule.Requester && g.Group.Covers(group)
	})
}

// assumedThrough returns our identities through which a caller has assumed their own.
func (s *Service) assumedThrough(caller authz.Caller) (all []resource.UID) {
	for act := caller.Act; act != nil; act = act.Act {
		if act.Issuer == s.authz.Issuer {
			all = append(all, resource.UID(act.Subject))
		}
	}
	return all
}

// GetAccessRequest returns a request. The caller needs role_bindings.list on it, or has made it.
func (s *Service) GetAccessRequest(ctx context.Context, uid resource.UID) (DatedRequest, error) {
	r, err := s.requestAs(ctx, uid, resource.RoleBindingsList)
	return s.dated(r), err
}

// requestAs returns a request that the caller has made, or on which they hold want. To anybody else the answer is the
// same whether or not there is one.
func (s *Service) requestAs(
	ctx context.Context, uid resource.UID, want resource.Capability,
) (resource.AccessRequest, error) {
	denied := s.authz.Require(ctx, want, uid)
	if errors.Is(denied, fault.Unauthenticated) {
		return resource.AccessRequest{}, denied
	}
	r, err := s.store.AccessRequest(ctx, uid)
	if denied == nil || err != nil && !errors.Is(err, fault.NotFound) {
		return r, err
	}
	if c, unnarrowed := authz.RequireUnnarrowed(ctx); err == nil && unnarrowed == nil && c.Identity == r.Identity {
		return r, nil
	}
	return resource.AccessRequest{}, denied
}

// A RequestFilter selects requests: those that the caller has made, if Mine is set.
type RequestFilter struct {
	resource.Filter
	Mine bool
}

// ListAccessRequests returns a page of the requests on which the caller holds role_bindings.list, or of those that the
// caller has made.
func (s *Service) ListAccessRequests(
	ctx context.Context, f RequestFilter, p page.Params,
) (page.Page[DatedRequest], error) {
	var got page.Page[resource.AccessRequest]
	var err error
	if f.Mine {
		got, err = s.ownRequests(ctx, f.Filter, p)
	} else {
		got, err = authz.List(ctx, s.authz, s.pages, iamdb.RequestList, resource.RoleBindingsList, f.Filter, p,
			s.store.AccessRequests)
	}
	all := make([]DatedRequest, 0, len(got.Items))
	for _, r := range got.Items {
		all = append(all, s.dated(r))
	}
	return page.With(got, all), err
}

func (s *Service) ownRequests(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.AccessRequest], error) {
	c, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return page.Page[resource.AccessRequest]{}, err
	}
	f.Identity = c.Identity
	orgs, err := s.store.RequestedIn(ctx, c.Identity)
	if err != nil {
		return page.Page[resource.AccessRequest]{}, err
	}
	read := func(ctx context.Context, r store.Reach, f resource.Filter, q page.Request) (page.Page[resource.AccessRequest], error) {
		f.Identity = c.Identity // whatever a page token says
		return s.store.AccessRequests(ctx, r, f, q)
	}
	return page.Read(ctx, s.pages, iamdb.RequestList, store.Reach{Under: orgs}, f, p, read)
}

// ApproveAccessRequest approves a request. The caller needs role_bindings.create on it, and every capability of the
// role on its group until what is granted would end, when it is approved. They must not be who made the request, nor
// somebody who can act as them or whom they can act as; neither may those be who approve the same request.
func (s *Service) ApproveAccessRequest(ctx context.Context, uid resource.UID) (DatedRequest, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, uid); err != nil {
		return DatedRequest{}, err
	}
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return DatedRequest{}, err
	}
	r, err := s.store.AccessRequest(ctx, uid)
	if err != nil {
		return DatedRequest{}, err
	}
	if err := s.apart(ctx, caller, r); err != nil {
		return DatedRequest{}, err
	}
	r, err = s.store.ApproveAccess(ctx, uid, caller.Identity, func(now resource.AccessRequest) error {
		if len(now.Approvals) != len(r.Approvals) { // somebody else was faster, and may be the same
			return fault.New(fault.Aborted, "Aborted: somebody has approved this request at the same time; try again")
		}
		if err := s.authz.Require(ctx, resource.RoleBindingsCreate, uid); err != nil {
			return err
		}
		if !mayAsk(resource.AccessRule{}, uid.Parent(), s.authz.GrantsOf(now.Identity)) {
			return fault.Unmet("REQUESTER_GONE", "whoever has asked holds no role in the organization any more")
		}
		_, clock := s.store.Clock()
		return s.authz.RequireRole(ctx, uid.Parent(), now.Role, "role_uid", clock.Add(now.Duration).Truncate(time.Second))
	})
	return s.dated(r), err
}

// apart returns fault.FailedPrecondition unless the caller, and whoever they act through, is somebody else than who
// made the request and who has approved it.
func (s *Service) apart(ctx context.Context, caller authz.Caller, r resource.AccessRequest) error {
	mine := append(s.assumedThrough(caller), caller.Identity)
	theirs := append(slices.Clone(r.Via), r.Identity)
	for _, a := range r.Approvals {
		theirs = append(theirs, a.Identity)
	}
	for _, pair := range [][2][]resource.UID{{mine, theirs}, {theirs, mine}} {
		for _, one := range pair[0] {
			all, err := s.authz.Assumable(ctx, one)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(uid resource.UID) bool { return slices.Contains(pair[1], uid) }) {
				if slices.ContainsFunc(r.Approvals, func(a resource.AccessApproval) bool { return a.Identity == caller.Identity }) {
					return fault.Unmet("APPROVED_ALREADY", "you have approved this request; it waits for somebody else")
				}
				return fault.Unmet("OWN_REQUEST", "nobody approves what they have asked for or approved themselves, by any identity")
			}
		}
	}
	return nil
}

// DenyAccessRequest refuses a request. The caller needs role_bindings.create on it.
func (s *Service) DenyAccessRequest(ctx context.Context, uid resource.UID) (DatedRequest, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, uid); err != nil {
		return DatedRequest{}, err
	}
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return DatedRequest{}, err
	}
	r, err := s.store.DenyAccess(ctx, uid, caller.Identity)
	return s.dated(r), err
}

// HandBackAccessRequest withdraws a request, or ends what it was granted. The caller needs role_bindings.delete on it,
// or has made it.
func (s *Service) HandBackAccessRequest(ctx context.Context, uid resource.UID) (DatedRequest, error) {
	if _, err := s.requestAs(ctx, uid, resource.RoleBindingsDelete); err != nil {
		return DatedRequest{}, err
	}
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return DatedRequest{}, err
	}
	r, err := s.store.HandBackAccess(ctx, uid, caller.Identity)
	return s.dated(r), err
}

func (s *Service) dated(r resource.AccessRequest) DatedRequest {
	_, now := s.store.Clock()
	return DatedRequest{r, now}
}
