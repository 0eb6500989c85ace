package iam

import (
	"cmp"
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

// A DatedRequest is a request and the time at which it was read, by the clock that decides the state of the request.
type DatedRequest struct {
	resource.AccessRequest
	Now time.Time
}

// CreateAccessRule creates a rule by which identities can request a role on a group. The caller needs
// role_bindings.create there, and must hold every capability of the role permanently, because the rule leads to grants
// that other people approve, or that nobody approves if it is a break-glass rule.
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
		return r, fault.Field("requester_role_uid", "must be a managed role, or a role of this group or of a group above it")
	}
	r.UID, r.CreateTime = parent.NewChild(), s.now()
	r.UpdateTime = r.CreateTime
	return r, s.store.InsertAccessRule(ctx, r)
}

// DeleteAccessRule deletes a rule. The caller needs role_bindings.delete on it.
func (s *Service) DeleteAccessRule(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.RoleBindingsDelete, uid, s.store.DeleteAccessRule)
}

// ListAccessRules returns a page of the rules on which the caller holds groups.list, because callers who see a group
// may know which roles they can request there.
func (s *Service) ListAccessRules(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.AccessRule], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.RuleList, resource.GroupsList, f, p, s.store.AccessRules)
}

// RequestAccessTo requests a role on a group for the caller, by a rule of the group. It returns fault.PermissionDenied
// if no rule allows the request, whether or not the group and the role exist. It also returns fault.PermissionDenied
// if the token is narrowed, because the granted role would not be narrowed.
func (s *Service) RequestAccessTo(
	ctx context.Context, group resource.UID, r resource.AccessRequest,
) (none DatedRequest, _ error) {
	caller, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return none, err
	}
	if err := r.Validate(); err != nil {
		return none, err
	}
	rule, err := s.ruleFor(ctx, group, r)
	if err != nil {
		return none, err
	}
	if r.Role == resource.OwnerRole && !caller.Identity.IsRoot() && caller.Identity.Root() != group.Root() {
		return none, fault.Field("role_uid", "cannot be owner for a workload of another organization, which can delete it")
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
		var also []func(*store.Tx) error
		if also, err = s.mailRequest(ctx, r); err == nil {
			err = s.store.InsertAccessRequest(ctx, r, also...)
		}
	}
	return s.dated(r), err
}

// ruleFor returns the rule by which the caller may request a role. If there are several, it returns the one with the
// fewest requirements among those that allow the request: see cmpRequirements. If none allows it, ruleFor returns the
// rule with the longest duration, so that the error states the longest duration. If there is no rule, it returns
// fault.PermissionDenied.
func (s *Service) ruleFor(
	ctx context.Context, group resource.UID, r resource.AccessRequest,
) (none resource.AccessRule, _ error) {
	rules, err := s.store.AccessRulesOf(ctx, group, r.Role)
	if err != nil {
		return none, err
	}
	held, err := s.authz.GrantsOfCaller(ctx)
	if err != nil {
		return none, err
	}
	rules = slices.DeleteFunc(rules, func(rule resource.AccessRule) bool {
		return rule.BreakGlass != r.BreakGlass || !mayRequest(rule, group, held)
	})
	if len(rules) == 0 {
		return none, fault.New(fault.PermissionDenied,
			"Permission denied: no access rule of %s allows you to request this role", group)
	}
	longest := slices.MaxFunc(rules, func(a, b resource.AccessRule) int {
		return cmp.Compare(a.MaxDuration, b.MaxDuration)
	})
	rules = slices.DeleteFunc(rules, func(rule resource.AccessRule) bool { return !admits(rule, r) })
	if len(rules) == 0 {
		return longest, nil
	}
	return slices.MinFunc(rules, cmpRequirements), nil
}

// admits reports whether a request has a duration that a rule allows, and a reason if the rule requires one.
func admits(rule resource.AccessRule, r resource.AccessRequest) bool {
	return r.Duration <= rule.MaxDuration && (!rule.ReasonRequired || strings.TrimSpace(r.Reason) != "")
}

// cmpRequirements compares two rules: by the number of approvers, then by whether a reason is required, then by the
// duration, the longest first.
func cmpRequirements(a, b resource.AccessRule) int {
	reason := func(r resource.AccessRule) int {
		if r.ReasonRequired {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Approvers, b.Approvers), cmp.Compare(reason(a), reason(b)),
		cmp.Compare(b.MaxDuration, a.MaxDuration), cmp.Compare(a.UID, b.UID))
}

// mayRequest reports whether an identity with these grants may make requests by a rule of a group. A rule without a
// requester role is for every identity that holds a role in the organization.
func mayRequest(rule resource.AccessRule, group resource.UID, held []authz.Grant) bool {
	return slices.ContainsFunc(held, func(g authz.Grant) bool {
		if rule.Requester == "" {
			return g.Group.Root() == group.Root()
		}
		return g.Role == rule.Requester && g.Group.Covers(group)
	})
}

// assumedThrough returns the identities of this service through which a caller has assumed their identity.
func (s *Service) assumedThrough(caller authz.Caller) (identities []resource.UID) {
	for act := caller.Act; act != nil; act = act.Act {
		if act.Issuer == s.authz.Issuer {
			identities = append(identities, resource.UID(act.Subject))
		}
	}
	return identities
}

// GetAccessRequest returns a request. The caller needs role_bindings.list on it, unless they have made it.
func (s *Service) GetAccessRequest(ctx context.Context, uid resource.UID) (DatedRequest, error) {
	r, err := s.requestAs(ctx, uid, resource.RoleBindingsList)
	return s.dated(r), err
}

// requestAs returns a request that the caller has made, or on which they hold want. To any other caller it returns
// fault.PermissionDenied, whether or not the request exists.
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

// A RequestFilter selects requests.
type RequestFilter struct {
	resource.Filter
	Mine bool // whether to select only requests that the caller has made
}

// ListAccessRequests returns a page of the requests on which the caller holds role_bindings.list, or, if f.Mine is
// set, of the requests that the caller has made.
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
	requests := make([]DatedRequest, 0, len(got.Items))
	for _, r := range got.Items {
		requests = append(requests, s.dated(r))
	}
	return page.With(got, requests), err
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
	read := func(
		ctx context.Context, r store.Reach, f resource.Filter, q page.Request,
	) (page.Page[resource.AccessRequest], error) {
		f.Identity = c.Identity // overrides an identity in the page token
		return s.store.AccessRequests(ctx, r, f, q)
	}
	return page.Read(ctx, s.pages, iamdb.RequestList, store.Reach{Under: orgs}, f, p, read)
}

// ApproveAccessRequest approves a request. The caller needs role_bindings.create on it, and every capability of the
// role on its group until the grant would end. ApproveAccessRequest returns fault.FailedPrecondition if the caller has
// made or already approved the request, or if the caller can assume, or be assumed by, an identity that has done so.
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
	if err := s.requireIndependent(ctx, caller, r); err != nil {
		return DatedRequest{}, err
	}
	granted, err := s.mailDecision(ctx, r)
	if err != nil {
		return DatedRequest{}, err
	}
	r, err = s.store.ApproveAccess(ctx, uid, caller.Identity, func(locked resource.AccessRequest) error {
		if len(locked.Approvals) != len(r.Approvals) { // requireIndependent has not seen the new approval
			return fault.New(fault.Aborted, "Aborted: somebody has approved this request at the same time; try again")
		}
		if err := s.authz.Require(ctx, resource.RoleBindingsCreate, uid); err != nil {
			return err
		}
		if !mayRequest(resource.AccessRule{}, uid.Parent(), s.authz.GrantsOf(locked.Identity)) {
			return fault.Unmet("REQUESTER_GONE", "the requester no longer holds a role in the organization")
		}
		_, latest := s.store.Clock()
		end := latest.Add(locked.Duration).Truncate(time.Second)
		return s.authz.RequireRole(ctx, uid.Parent(), locked.Role, "role_uid", end)
	}, granted...)
	return s.dated(r), err
}

// requireIndependent returns fault.FailedPrecondition if the caller, or an identity through which the caller acts, is
// the requester or an approver of the request, or can assume or be assumed by one of them.
func (s *Service) requireIndependent(ctx context.Context, caller authz.Caller, r resource.AccessRequest) error {
	mine := append(s.assumedThrough(caller), caller.Identity)
	theirs := append(slices.Clone(r.Via), r.Identity)
	for _, a := range r.Approvals {
		theirs = append(theirs, a.Identity)
	}
	related, err := s.canAssumeAny(ctx, mine, theirs)
	if err == nil && !related {
		related, err = s.canAssumeAny(ctx, theirs, mine)
	}
	if err != nil || !related {
		return err
	}
	if slices.ContainsFunc(r.Approvals, func(a resource.AccessApproval) bool { return a.Identity == caller.Identity }) {
		return fault.Unmet("APPROVED_ALREADY",
			"you have already approved this request; it needs the approval of another person")
	}
	return fault.Unmet("OWN_REQUEST",
		"you cannot approve a request that you have made or approved yourself, with this or another identity")
}

// canAssumeAny reports whether one of the identities from is, or can assume, one of the identities to.
func (s *Service) canAssumeAny(ctx context.Context, from, to []resource.UID) (bool, error) {
	for _, identity := range from {
		assumable, err := s.authz.Assumable(ctx, identity)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(assumable, func(uid resource.UID) bool { return slices.Contains(to, uid) }) {
			return true, nil
		}
	}
	return false, nil
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
	r, err := s.store.AccessRequest(ctx, uid)
	if err != nil {
		return DatedRequest{}, err
	}
	denied, err := s.mailDecision(ctx, r)
	if err != nil {
		return DatedRequest{}, err
	}
	r, err = s.store.DenyAccess(ctx, uid, caller.Identity, denied...)
	return s.dated(r), err
}

// HandBackAccessRequest withdraws a request, or ends the binding that the request has created. The caller needs
// role_bindings.delete on it, unless they have made the request.
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
	_, latest := s.store.Clock()
	return DatedRequest{r, latest}
}
