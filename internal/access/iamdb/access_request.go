package iamdb

import (
	"context"
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
			store.JSON("detail", r), // what has a column is read from that
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
			store.JSON("detail", r), // what has a column is read from that
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

// InsertAccessRule adds a rule. It returns fault.NotFound if its group or a role is not there, and
// fault.FailedPrecondition if the group has too many.
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
			return fault.Unmet("TOO_MANY_RULES", "a group has at most %d access rules", resource.MaxAccessRules)
		}
		return store.Insert(ctx, t.Tx, &accessRules, r)
	})
}

// AccessRule returns a rule, or fault.NotFound.
func (s *Store) AccessRule(ctx context.Context, uid resource.UID) (resource.AccessRule, error) {
	return store.Get(ctx, s.DB, &accessRules, uid)
}

// AccessRulesOf returns the rules of a group for a role, the oldest first.
func (s *Store) AccessRulesOf(ctx context.Context, group, role resource.UID) ([]resource.AccessRule, error) {
	found, err := accessRules.All(ctx, s.Rows, ` WHERE t.parent = $1 AND t.role = $2 ORDER BY t.create_ms, t.seg`,
		store.Segment(group), store.Segment(role))
	var all []resource.AccessRule
	for _, r := range found { // not another's whose last segment is the same
		if r.UID.Parent() == group && r.Role == role {
			all = append(all, r)
		}
	}
	return all, err
}

// DeleteAccessRule removes a rule. It returns fault.NotFound if there is none.
func (s *Store) DeleteAccessRule(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error { return store.Delete(ctx, t.Tx, &accessRules, uid) })
}

// AccessRules returns one page of rules.
func (s *Store) AccessRules(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.AccessRule], error) {
	return store.List(ctx, s.DB, &accessRules, r, f, p)
}

// InsertAccessRequest adds a request that waits for approvals. It returns fault.NotFound if its group, its rule or its
// role is not there, and fault.FailedPrecondition if the identity has too many open ones.
func (s *Store) InsertAccessRequest(ctx context.Context, r resource.AccessRequest) error {
	return s.write(ctx, func(t Tx) error { return t.insertAccessRequest(ctx, r) })
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
		return fault.Unmet("TOO_MANY_REQUESTS", "you have %d requests that are not decided", open)
	}
	return store.Insert(ctx, t.Tx, &accessRequests, r)
}

// TakeAccess adds a request that needs no approval, and grants it.
func (s *Store) TakeAccess(ctx context.Context, r resource.AccessRequest) (resource.AccessRequest, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.insertAccessRequest(ctx, r); err != nil {
			return err
		}
		before := r
		if err := t.grantAccess(ctx, &r); err != nil {
			return err
		}
		return t.moveRequest(ctx, resource.AccessRequestTaken, before, &r)
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

// RequestedIn returns the organizations in which an identity has made requests.
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

// ApproveAccess adds the approval of an identity to a request, and grants the role with the last that it takes. may
// is asked whether they may, while their bindings are held until the commit: nobody can take away meanwhile what
// it relies on. It returns fault.NotFound if there is no such request, and fault.FailedPrecondition if it is
// decided, or they have approved it before.
func (s *Store) ApproveAccess(
	ctx context.Context, uid, by resource.UID, may func(resource.AccessRequest) error,
) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := t.lockPending(ctx, uid)
		if err != nil {
			return err
		}
		if err := t.holdBindings(ctx, by); err != nil {
			return err
		}
		if err := may(before); err != nil {
			return err
		}
		r = before
		r.Approvals = append([]resource.AccessApproval(nil), before.Approvals...)
		for _, a := range before.Approvals {
			if a.Identity == by {
				return fault.Unmet("APPROVED_ALREADY", "you have approved this request; it waits for somebody else")
			}
		}
		r.Approvals = append(r.Approvals, resource.AccessApproval{Identity: by, Time: t.DB.Time()})
		what := resource.AccessRequestApproved
		if len(r.Approvals) >= r.Approvers {
			what = resource.AccessRequestGranted
			if err := t.grantAccess(ctx, &r); err != nil {
				return err
			}
		}
		return t.moveRequest(ctx, what, before, &r)
	})
	return r, err
}

// lockPending reads a request that is about to be decided. Its group is held first, as those do who delete it.
func (t Tx) lockPending(ctx context.Context, uid resource.UID) (r resource.AccessRequest, _ error) {
	if err := t.RequireGroup(ctx, uid.Parent()); err != nil {
		return r, err
	}
	r, err := store.Lock(ctx, t.Tx, &accessRequests, uid, t.DB.Engine.ForUpdate)
	if err != nil {
		return r, err
	}
	now, err := t.Clock(ctx)
	if err == nil && r.StateAt(now) != resource.AccessPending {
		err = fault.Unmet("REQUEST_DECIDED", "the request is not open any more")
	}
	return r, err
}

// holdBindings keeps the bindings of an identity from being changed or removed until the commit.
func (t Tx) holdBindings(ctx context.Context, identity resource.UID) error {
	hold := t.DB.Engine.ForShare
	if t.DB.Engine.Postgres {
		hold = ` FOR SHARE OF t`
	}
	_, err := store.ReadColumn[int64](ctx, t.Rows, `SELECT t.seg FROM role_bindings AS t WHERE t.identity = $1 ORDER BY t.seg`+hold,
		string(identity))
	return err
}

// grantAccess makes the binding that a request asks for, from now on.
func (t Tx) grantAccess(ctx context.Context, r *resource.AccessRequest) error {
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	b := resource.RoleBinding{
		UID: r.Group().NewChild(), Identity: r.Identity, Role: r.Role, CreateTime: t.DB.Time(), Reason: r.Reason,
		ExpireTime: now.Add(r.Duration),
	}.WholeSeconds()
	if err := t.bindable(ctx, b, nil); err != nil {
		return err
	}
	if err := t.Require(ctx, "identities", "identity", r.Identity); err != nil { // a person, too
		return err
	}
	if err := t.bind(ctx, b); err != nil {
		return err
	}
	r.State, r.Binding, r.GrantTime, r.ExpireTime = resource.AccessGranted, b.UID, now, b.ExpireTime
	return nil
}

// moveRequest writes the new state of a request with its event.
func (t Tx) moveRequest(ctx context.Context, what resource.EventType, before resource.AccessRequest, after *resource.AccessRequest) error {
	if err := store.UpdateRow(ctx, t.Tx, &accessRequests, before, after); err != nil {
		return err
	}
	return t.Emit(ctx, what, after.UID, after.Group(), before, *after)
}

// DenyAccess refuses a request. It returns fault.NotFound if there is none, and fault.FailedPrecondition if it is
// decided.
func (s *Store) DenyAccess(ctx context.Context, uid, by resource.UID) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := t.lockPending(ctx, uid)
		if err != nil {
			return err
		}
		r = before
		r.State, r.Closer, r.CloseTime = resource.AccessDenied, by, t.DB.Time()
		return t.moveRequest(ctx, resource.AccessRequestDenied, before, &r)
	})
	return r, err
}

// HandBackAccess withdraws a request that is open, or ends what it was granted, which stays as a binding that is over.
// It returns fault.NotFound if there is none, and fault.FailedPrecondition if there is nothing to hand back.
func (s *Store) HandBackAccess(ctx context.Context, uid, by resource.UID) (r resource.AccessRequest, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accessRequests, uid, t.DB.Engine.ForUpdate)
		if err != nil {
			return err
		}
		now, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		r = before
		switch before.StateAt(now) {
		case resource.AccessPending:
		case resource.AccessGranted:
			if err := t.returnBinding(ctx, before.Binding, now); err != nil {
				return err
			}
			r.ExpireTime = now
		default:
			return fault.Unmet("REQUEST_DECIDED", "there is nothing to hand back")
		}
		r.State, r.Closer, r.CloseTime = resource.AccessHandedBack, by, t.DB.Time()
		return t.moveRequest(ctx, resource.AccessRequestHandedBack, before, &r)
	})
	return r, err
}

// returnBinding ends a binding now. One that somebody has deleted is gone already.
func (t Tx) returnBinding(ctx context.Context, uid resource.UID, now time.Time) error {
	all, err := bareBindings.All(ctx, t.Rows, ` WHERE t.uid = $1`+t.DB.Engine.ForUpdate, string(uid))
	if err != nil || len(all) == 0 || all[0].State(now) == resource.BindingOver {
		return err
	}
	b := all[0]
	b.ExpireTime = now
	if err := t.updateBinding(ctx, b); err != nil {
		return err
	}
	return t.endBinding(ctx, b, now)
}

// closeRequests deletes the rules of a group that goes, and closes its open requests. What was asked for stays, until
// the organization goes.
func (t Tx) closeRequests(ctx context.Context, group resource.UID) error {
	n, err := t.Exec(ctx, `DELETE FROM access_rules WHERE parent = $1`, store.Segment(group))
	if err == nil && n > 0 {
		err = t.Count(ctx, "access_rules", group.NewChild(), -int(n))
	}
	if err != nil {
		return err
	}
	if group.IsRoot() {
		_, err := t.Exec(ctx, `DELETE FROM role_requests WHERE a1 = $1`, store.Segment(group))
		return err
	}
	open, err := accessRequests.All(ctx, t.Rows, ` WHERE t.parent = $1 AND t.pending = 1 ORDER BY t.seg`+t.DB.Engine.ForUpdate,
		store.Segment(group))
	if err != nil {
		return err
	}
	for _, before := range open {
		r := before
		r.State, r.CloseTime = resource.AccessClosed, t.DB.Time()
		if err := t.moveRequest(ctx, resource.AccessRequestClosed, before, &r); err != nil {
			return err
		}
	}
	return nil
}
