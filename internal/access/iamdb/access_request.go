package iamdb

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var accessRules = store.Kind[resource.AccessRule]{
	Table: "access_rules", Label: "access rule",
	Created: resource.AccessRuleCreated, Deleted: resource.AccessRuleDeleted,
	Columns: func(r *resource.AccessRule) []store.Column {
		return []store.Column{
			store.JSON("detail", r), // JSON of the rule; fields that have their own column are read from that column
			store.Key(&r.UID),
			store.Derived("role", store.Segment(r.Role)),
			store.Derived("requester", segmentOrNull(r.Requester)),
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime),
		}
	},
}

var accessRequests = store.Kind[resource.AccessRequest]{
	Table: "role_requests", Label: "access request", Created: resource.AccessRequestCreated,
	Columns: func(r *resource.AccessRequest) []store.Column {
		pending := 0
		if r.State == resource.AccessPending {
			pending = 1
		}
		return []store.Column{
			store.JSON("detail", r), // JSON of the request; fields that have their own column are read from that column
			store.Key(&r.UID),
			store.Text("identity", &r.Identity).Fixed(),
			store.Derived("pending", pending),
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime),
		}
	},
}

func segmentOrNull(uid resource.UID) any {
	if uid == "" {
		return nil
	}
	return store.Segment(uid)
}

// InsertAccessRule adds a rule. It returns fault.NotFound if its group or one of its roles does not exist, and
// fault.FailedPrecondition if the group already has resource.MaxAccessRules rules.
func (s *Store) InsertAccessRule(ctx context.Context, r resource.AccessRule) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, r.UID.Parent()); err != nil {
			return err
		}
		if err := t.RequireRole(ctx, r.Role); err != nil {
			return err
		}
		if r.Requester != "" {
			if err := t.RequireRole(ctx, r.Requester); err != nil {
				return err
			}
		}
		var n int
		if err := t.Row(ctx, `SELECT count(*) FROM access_rules WHERE parent = $1`,
			[]any{store.Segment(r.UID.Parent())}, &n); err != nil {
			return err
		}
		if n >= resource.MaxAccessRules {
			return fault.Unmet("TOO_MANY_RULES", "a group can have at most %d access rules", resource.MaxAccessRules)
		}
		return store.Insert(ctx, t.Tx, &accessRules, r)
	})
}

// AccessRule returns a rule, or fault.NotFound.
func (s *Store) AccessRule(ctx context.Context, uid resource.UID) (resource.AccessRule, error) {
	return store.Get(ctx, s.DB, &accessRules, uid)
}

// AccessRulesOf returns the rules of a group for a role, oldest first.
func (s *Store) AccessRulesOf(ctx context.Context, group, role resource.UID) ([]resource.AccessRule, error) {
	found, err := accessRules.All(ctx, s.Rows, ` WHERE t.parent = $1 AND t.role = $2 ORDER BY t.create_ms, t.seg`,
		store.Segment(group), store.Segment(role))
	var all []resource.AccessRule
	for _, r := range found { // two UIDs can end in the same segment
		if r.UID.Parent() == group && r.Role == role {
			all = append(all, r)
		}
	}
	return all, err
}

// DeleteAccessRule removes a rule. It returns nil if there is no such rule.
func (s *Store) DeleteAccessRule(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error { return store.Delete(ctx, t.Tx, &accessRules, uid) })
}

// AccessRules returns one page of rules.
func (s *Store) AccessRules(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.AccessRule], error) {
	return store.List(ctx, s.DB, &accessRules, r, f, p)
}

// InsertAccessRequest adds a request that waits for approvals, and calls the functions also in the same transaction. It
// returns fault.NotFound if its group, rule or role does not exist, and fault.FailedPrecondition if the identity
// already has resource.MaxOpenRequests open requests.
func (s *Store) InsertAccessRequest(
	ctx context.Context, r resource.AccessRequest, also ...func(*store.Tx) error,
) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.insertAccessRequest(ctx, r); err != nil {
			return err
		}
		return t.Do(also...)
	})
}

func (t Tx) insertAccessRequest(ctx context.Context, r resource.AccessRequest) error {
	if err := t.RequireGroup(ctx, r.Group()); err != nil {
		return err
	}
	if err := t.RequireRole(ctx, r.Role); err != nil {
		return err
	}
	if err := t.Require(ctx, "access_rules", "access rule", r.Rule); err != nil {
		return err
	}
	var open int
	if err := t.Row(ctx, `SELECT count(*) FROM role_requests WHERE identity = $1 AND pending = 1 AND create_ms > $2`,
		[]any{string(r.Identity), store.MS(t.DB.Time().Add(-resource.RequestWaits))}, &open); err != nil {
		return err
	}
	if open >= resource.MaxOpenRequests {
		return fault.Unmet("TOO_MANY_REQUESTS", "you already have %d undecided requests", open)
	}
	return store.Insert(ctx, t.Tx, &accessRequests, r)
}

// TakeAccess adds a request that needs no approval, and grants it. Its errors are the errors of InsertAccessRequest.
func (s *Store) TakeAccess(ctx context.Context, r resource.AccessRequest) (resource.AccessRequest, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.insertAccessRequest(ctx, r); err != nil {
			return err
		}
		before := r
		if err := t.grantAccess(ctx, &r); err != nil {
			return err
		}
		return t.updateRequest(ctx, resource.AccessRequestTaken, before, &r)
	})
	return r, err
}

// AccessRequest returns a request, or fault.NotFound.
func (s *Store) AccessRequest(ctx context.Context, uid resource.UID) (resource.AccessRequest, error) {
	return store.Get(ctx, s.DB, &accessRequests, uid)
}

// AccessRequests returns one page of requests.
func (s *Store) AccessRequests(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.AccessRequest], error) {
	return store.List(ctx, s.DB, &accessRequests, r, f, p)
}

// RequestedIn returns the organizations in which an identity has made access requests.
func (s *Store) RequestedIn(ctx context.Context, identity resource.UID) (orgs []resource.UID, _ error) {
	seen := map[resource.UID]bool{}
	err := s.Rows(ctx, `SELECT DISTINCT g.uid FROM role_requests AS r JOIN groups AS g ON g.seg = r.a1
		WHERE r.identity = $1 ORDER BY g.uid`, []any{string(identity)}, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		if !seen[uid] {
			seen[uid], orgs = true, append(orgs, uid)
		}
		return false, err
	})
	return orgs, err
}

// ApproveAccess adds the approval of the identity approver to a request. With the last approval that it needs, the
// request is granted. ApproveAccess calls mayApprove while it holds a lock on the approver's bindings until the commit,
// so that nobody can revoke the bindings on which the decision rests. It returns the error of mayApprove,
// fault.NotFound if there is no such request, and fault.FailedPrecondition if the request is already decided or the
// identity has already approved it. If the request is granted, ApproveAccess calls the functions granted with it in the
// same transaction.
func (s *Store) ApproveAccess(
	ctx context.Context, uid, approver resource.UID, mayApprove func(resource.AccessRequest) error,
	granted ...func(*store.Tx, resource.AccessRequest) error,
) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := t.lockPending(ctx, uid)
		if err != nil {
			return err
		}
		if err := t.holdBindings(ctx, approver); err != nil {
			return err
		}
		if err := mayApprove(before); err != nil {
			return err
		}
		r = before
		if r.Approvals, err = t.activeApprovals(ctx, before.Approvals); err != nil {
			return err
		}
		for _, a := range before.Approvals {
			if a.Identity == approver {
				return fault.Unmet("APPROVED_ALREADY",
					"you have already approved this request; it needs the approval of another person")
			}
		}
		r.Approvals = append(r.Approvals, resource.AccessApproval{Identity: approver, Time: t.DB.Time()})
		event := resource.AccessRequestApproved
		if len(r.Approvals) >= r.Approvers {
			event = resource.AccessRequestGranted
			if err := t.grantAccess(ctx, &r); err != nil {
				return err
			}
			if err := t.callAll(r, granted); err != nil {
				return err
			}
		}
		return t.updateRequest(ctx, event, before, &r)
	})
	return r, err
}

// callAll calls functions with a request in the transaction.
func (t Tx) callAll(r resource.AccessRequest, functions []func(*store.Tx, resource.AccessRequest) error) error {
	for _, f := range functions {
		if err := f(t.Tx, r); err != nil {
			return err
		}
	}
	return nil
}

// activeApprovals returns the approvals of people who are not suspended. The approvals of others do not count.
func (t Tx) activeApprovals(
	ctx context.Context, approvals []resource.AccessApproval,
) (active []resource.AccessApproval, _ error) {
	for _, a := range approvals {
		err := t.requireActive(ctx, a.Identity)
		if errors.Is(err, fault.PermissionDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		active = append(active, a)
	}
	return active, nil
}

// lockPending reads and locks a request that is about to be decided. It locks the group before the request, as the
// deletion of a group does, so that the two cannot deadlock. It returns fault.FailedPrecondition if the request is
// decided.
func (t Tx) lockPending(ctx context.Context, uid resource.UID) (r resource.AccessRequest, _ error) {
	if err := t.RequireGroup(ctx, uid.Parent()); err != nil {
		return r, err
	}
	r, err := store.Lock(ctx, t.Tx, &accessRequests, uid, t.DB.Engine.ForUpdate)
	if err != nil {
		return r, err
	}
	currentTime, err := t.Clock(ctx)
	if err == nil && r.StateAt(currentTime) != resource.AccessPending {
		err = fault.Unmet("REQUEST_DECIDED", "the request is no longer open")
	}
	return r, err
}

// holdBindings locks the bindings of an identity against changes until the commit.
func (t Tx) holdBindings(ctx context.Context, identity resource.UID) error {
	_, err := store.ReadColumn[int64](ctx, t.Rows,
		`SELECT t.seg FROM role_bindings AS t WHERE t.identity = $1 ORDER BY t.seg`+t.DB.Engine.ForHold, string(identity))
	return err
}

// grantAccess creates the binding that a request asks for, beginning now, and records it in r.
func (t Tx) grantAccess(ctx context.Context, r *resource.AccessRequest) error {
	currentTime, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	b := resource.RoleBinding{
		UID: r.Group().NewChild(), Identity: r.Identity, Role: r.Role, CreateTime: t.DB.Time(), Reason: r.Reason,
		ExpireTime: currentTime.Add(r.Duration),
	}.WholeSeconds()
	if err := t.bindable(ctx, b, nil); err != nil {
		return err
	}
	// bindable does not check whether a person exists.
	if err := t.Require(ctx, "identities", "identity", r.Identity); err != nil {
		return err
	}
	if err := t.bind(ctx, b); err != nil {
		return err
	}
	r.State, r.Binding, r.GrantTime, r.ExpireTime = resource.AccessGranted, b.UID, currentTime, b.ExpireTime
	return nil
}

// updateRequest writes the new state of a request with its event.
func (t Tx) updateRequest(
	ctx context.Context, event resource.EventType, before resource.AccessRequest, after *resource.AccessRequest,
) error {
	if err := store.UpdateRow(ctx, t.Tx, &accessRequests, before, after); err != nil {
		return err
	}
	return t.Emit(ctx, event, after.UID, after.Group(), before, *after)
}

// DenyAccess refuses a request, and calls the functions denied with it in the same transaction. It returns
// fault.NotFound if there is no such request, and fault.FailedPrecondition if it is already decided.
func (s *Store) DenyAccess(
	ctx context.Context, uid, by resource.UID, denied ...func(*store.Tx, resource.AccessRequest) error,
) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := t.lockPending(ctx, uid)
		if err != nil {
			return err
		}
		r = before
		r.State, r.Closer, r.CloseTime = resource.AccessDenied, by, t.DB.Time()
		if err := t.callAll(r, denied); err != nil {
			return err
		}
		return t.updateRequest(ctx, resource.AccessRequestDenied, before, &r)
	})
	return r, err
}

// HandBackAccess withdraws an open request, or ends the binding of a granted one; the ended binding stays stored. It
// returns fault.NotFound if there is no such request, and fault.FailedPrecondition if the request is neither open nor
// granted.
func (s *Store) HandBackAccess(ctx context.Context, uid, by resource.UID) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accessRequests, uid, t.DB.Engine.ForUpdate)
		if err != nil {
			return err
		}
		currentTime, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		r = before
		switch before.StateAt(currentTime) {
		case resource.AccessPending:
		case resource.AccessGranted:
			if err := t.returnBinding(ctx, before.Binding, currentTime); err != nil {
				return err
			}
			r.ExpireTime = currentTime
		default:
			return fault.Unmet("REQUEST_DECIDED", "the request is neither open nor granted, so there is nothing to hand back")
		}
		r.State, r.Closer, r.CloseTime = resource.AccessHandedBack, by, t.DB.Time()
		return t.updateRequest(ctx, resource.AccessRequestHandedBack, before, &r)
	})
	return r, err
}

// returnBinding ends a binding now. It returns nil if the binding has ended or was deleted.
func (t Tx) returnBinding(ctx context.Context, uid resource.UID, currentTime time.Time) error {
	found, err := bareBindings.All(ctx, t.Rows, ` WHERE t.uid = $1`+t.DB.Engine.ForUpdate, string(uid))
	if err != nil || len(found) == 0 || found[0].State(currentTime) == resource.BindingOver {
		return err
	}
	b := found[0]
	b.ExpireTime = currentTime
	if err := t.updateBinding(ctx, b); err != nil {
		return err
	}
	return t.endBinding(ctx, b, currentTime)
}

// closeRequests closes the open requests for roles in a group that is about to be deleted. Requests stay stored until
// the organization is deleted.
func (t Tx) closeRequests(ctx context.Context, group resource.UID) error {
	if group.IsRoot() {
		_, err := t.Exec(ctx, `DELETE FROM role_requests WHERE a1 = $1`, store.Segment(group))
		return err
	}
	return t.closeRequestsWhere(ctx, `t.parent = $1`, store.Segment(group))
}

// closeRequestsWhere closes the open requests that a condition selects.
func (t Tx) closeRequestsWhere(ctx context.Context, where string, arg any) error {
	open, err := accessRequests.All(ctx, t.Rows,
		` WHERE `+where+` AND t.pending = 1 ORDER BY t.seg`+t.DB.Engine.ForUpdate, arg)
	if err != nil {
		return err
	}
	for _, before := range open {
		r := before
		r.State, r.CloseTime = resource.AccessClosed, t.DB.Time()
		if err := t.updateRequest(ctx, resource.AccessRequestClosed, before, &r); err != nil {
			return err
		}
	}
	return nil
}
