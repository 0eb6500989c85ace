package iam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var editor = resource.ManagedRoleUID("editor")

// rule creates a rule by which the role editor can be requested on a group for up to eight hours.
func (w *world) rule(on resource.UID, change func(*resource.AccessRule)) resource.AccessRule {
	w.t.Helper()
	r := resource.AccessRule{Role: editor, MaxDuration: 8 * time.Hour}
	if change != nil {
		change(&r)
	}
	r, err := w.CreateAccessRule(w.owner, on, r)
	must(w.t, err)
	return r
}

func (w *world) ask(as context.Context, on resource.UID) (iam.DatedRequest, error) {
	return w.RequestAccessTo(as, on, resource.AccessRequest{Role: editor, Duration: 2 * time.Hour, Reason: "incident 7"})
}

func (w *world) asked(as context.Context, on resource.UID) resource.UID {
	w.t.Helper()
	r, err := w.ask(as, on)
	must(w.t, err)
	return r.UID
}

// edits reports whether an identity may create repos in a group.
func (w *world) edits(identity, group resource.UID) bool {
	w.t.Helper()
	a, err := w.CheckAccess(w.owner, identity, resource.RepoCreate, group)
	must(w.t, err)
	return a.Allowed
}

// approver creates an identity that permanently owns acme.
func (w *world) approver() context.Context {
	w.t.Helper()
	name := string("approver " + w.acme.UID.NewChild()[41:])
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
	must(w.t, err)
	_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: i.UID, Role: resource.OwnerRole})
	must(w.t, err)
	return w.as(i.UID)
}

// TestAccessRequests checks that an approved request gives the role for the requested duration, and that the role can
// be handed back.
func TestAccessRequests(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		prod := w.group(w.acme.UID, "prod")
		uid, worker := w.worker(w.acme.UID, "groups.list")
		_, err := w.ask(worker, prod.UID)
		want(t, "without a rule", err, fault.PermissionDenied)
		w.rule(prod.UID, nil)
		request := w.asked(worker, prod.UID)
		if w.edits(uid, prod.UID) {
			t.Error("it is held before it was approved")
		}
		before := time.Now()
		got, err := w.ApproveAccessRequest(w.owner, request)
		must(t, err)
		if got.State != resource.AccessGranted || got.ExpireTime.Sub(before).Round(time.Minute) != 2*time.Hour ||
			!w.edits(uid, prod.UID) || w.edits(uid, w.acme.UID) {
			t.Errorf("granted: %+v", got)
		}
		b, err := w.GetBinding(w.owner, got.Binding)
		if must(t, err); !b.ExpireTime.Equal(got.ExpireTime) || b.Reason != "incident 7" || b.Identity != uid {
			t.Errorf("the binding: %+v", b.RoleBinding)
		}
		for what, f := range map[string]func(context.Context, resource.UID) (iam.DatedRequest, error){
			"approving": w.ApproveAccessRequest, "denying": w.DenyAccessRequest,
		} {
			_, err := f(w.owner, request)
			want(t, what+" what is granted", err, fault.FailedPrecondition)
		}
		back, err := w.HandBackAccessRequest(worker, request)
		must(t, err)
		if back.State != resource.AccessHandedBack || back.Closer != uid || w.edits(uid, prod.UID) {
			t.Errorf("handed back: %+v", back)
		}
		b, err = w.GetBinding(w.owner, got.Binding)
		if must(t, err); b.State(b.Now) != resource.BindingOver {
			t.Errorf("the binding afterwards: %+v", b.RoleBinding)
		}
		_, err = w.HandBackAccessRequest(worker, request)
		want(t, "handing back twice", err, fault.FailedPrecondition)
		denied := w.asked(worker, prod.UID)
		_, err = w.DenyAccessRequest(w.owner, denied)
		must(t, err)
		_, err = w.ApproveAccessRequest(w.owner, denied)
		want(t, "approving what is denied", err, fault.FailedPrecondition)
		open := w.asked(worker, prod.UID)
		_, err = w.HandBackAccessRequest(worker, open)
		must(t, err)
		mine, err := w.ListAccessRequests(worker, iam.RequestFilter{Filter: resource.Filter{}, Mine: true}, page.Params{})
		if must(t, err); mine.Total != 3 {
			t.Errorf("%d requests of my own, want 3", mine.Total)
		}
		all, err := w.ListAccessRequests(w.owner, iam.RequestFilter{Filter: resource.Filter{}, Mine: false}, page.Params{})
		if must(t, err); all.Total != 3 {
			t.Errorf("the owner sees %d requests", all.Total)
		}
	})
}

// TestAccessRequestsOfOthers checks that strangers, other organizations, narrowed tokens and callers without the
// capabilities can neither make nor see nor decide requests.
func TestAccessRequestsOfOthers(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		prod := w.group(w.acme.UID, "prod")
		rule := w.rule(prod.UID, nil)
		uid, worker := w.worker(w.acme.UID, "groups.list")
		request := w.asked(worker, prod.UID)
		_, binder := w.worker(w.acme.UID, "role_bindings.create", "role_bindings.list", "role_bindings.delete")
		caps := resource.NewCapabilities(resource.RoleBindingsCreate)
		narrowed := func(of context.Context) context.Context {
			c, _ := authz.CallerFrom(of)
			c.Caps = &caps
			return authz.WithCaller(t.Context(), c)
		}
		_, peer := w.worker(w.acme.UID, "groups.list")
		none := t.Context()
		decisions := map[string]func(context.Context, resource.UID) (iam.DatedRequest, error){
			"approve": w.ApproveAccessRequest, "deny": w.DenyAccessRequest, "hand back": w.HandBackAccessRequest,
			"get": w.GetAccessRequest,
		}
		for what, decide := range decisions {
			for _, there := range []resource.UID{request, prod.UID.NewChild()} {
				for who, ctx := range map[string]context.Context{"another organization": w.rival, "a peer": peer} {
					_, err := decide(ctx, there)
					want(t, who+": "+what, err, fault.PermissionDenied)
				}
				_, err := decide(none, there)
				want(t, "no token: "+what, err, fault.Unauthenticated)
			}
		}
		_, err := w.ApproveAccessRequest(binder, request)
		want(t, "who lacks the role approves", err, fault.PermissionDenied)
		_, err = w.ApproveAccessRequest(narrowed(w.owner), request)
		want(t, "a narrowed token approves", err, fault.PermissionDenied)
		_, timed := w.timedOwner(time.Time{}, in(time.Hour))
		_, err = w.ApproveAccessRequest(timed, request)
		want(t, "who holds it for a shorter time approves", err, fault.PermissionDenied)
		for who, ctx := range map[string]context.Context{"another organization": w.rival,
			"a narrowed token": narrowed(worker)} {
			for _, on := range []resource.UID{prod.UID, prod.UID.Parent().NewChild()} {
				_, err := w.ask(ctx, on)
				want(t, who+" asks", err, fault.PermissionDenied)
			}
			_, err := w.GetAccessRequest(ctx, request)
			want(t, who+" reads", err, fault.PermissionDenied)
		}
		_, err = w.ask(none, prod.UID)
		want(t, "no token asks", err, fault.Unauthenticated)
		for who, ctx := range map[string]context.Context{"another organization": w.rival, "a peer": peer,
			"a narrowed token": narrowed(w.owner)} {
			got, err := w.ListAccessRequests(ctx, iam.RequestFilter{Filter: resource.Filter{}, Mine: false}, page.Params{})
			if must(t, err); got.Total != 0 {
				t.Errorf("%s sees %d requests", who, got.Total)
			}
		}
		mine, err := w.ListAccessRequests(w.rival, iam.RequestFilter{Filter: resource.Filter{Identity: uid}, Mine: true},
			page.Params{})
		if must(t, err); mine.Total != 0 {
			t.Errorf("another organization sees %d as its own", mine.Total)
		}
		_, err = w.CreateAccessRule(binder, prod.UID, resource.AccessRule{Role: editor, MaxDuration: time.Hour})
		want(t, "a rule about what one lacks", err, fault.PermissionDenied)
		_, err = w.CreateAccessRule(timed, prod.UID,
			resource.AccessRule{Role: editor, MaxDuration: time.Minute, BreakGlass: true})
		want(t, "a rule about what one holds for a time", err, fault.PermissionDenied)
		_, err = w.CreateAccessRule(w.rival, prod.UID, resource.AccessRule{Role: editor, MaxDuration: time.Hour})
		want(t, "a rule of another organization", err, fault.PermissionDenied)
		want(t, "deleting another's rule", w.DeleteAccessRule(w.rival, rule.UID), fault.PermissionDenied)
		w.rule(prod.UID, func(r *resource.AccessRule) { r.Role = resource.OwnerRole })
		rivals, err := w.CreateIdentity(w.rival, w.other.UID, person("rivals", "rivals"))
		must(t, err)
		_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: rivals.UID, Role: editor})
		must(t, err)
		_, err = w.RequestAccessTo(w.as(rivals.UID), prod.UID,
			resource.AccessRequest{Role: resource.OwnerRole, Duration: time.Hour})
		want(t, "another's workload asks to be an owner", err, fault.InvalidArgument)
	})
}

// TestNobodyApprovesTheirOwn checks that a requester cannot approve the request with another identity either, no matter
// which of the two identities can assume the other.
func TestNobodyApprovesTheirOwn(t *testing.T) {
	const issuer = "https://us.example"
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		w.checker.Issuer = issuer
		w.rule(w.acme.UID, nil)
		me, mine := w.timedLike(resource.OwnerRole)
		assumed, err := w.CreateIdentity(w.owner, w.acme.UID,
			resource.Identity{Name: "assumed", Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: string(me)},
			}})
		must(t, err)
		_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: assumed.UID, Role: resource.OwnerRole})
		must(t, err)
		asAssumed := authz.WithCaller(t.Context(),
			authz.Caller{Identity: assumed.UID, Act: &resource.Upstream{Issuer: issuer, Subject: string(me)}})
		other, through := w.timedLike(resource.OwnerRole)
		actsFor := authz.WithCaller(t.Context(),
			authz.Caller{Identity: other, Act: &resource.Upstream{Issuer: issuer, Subject: string(me)}})
		for name, tt := range map[string]struct{ ask, approve context.Context }{
			"oneself":                              {mine, mine},
			"one that can be assumed by who asked": {mine, w.as(assumed.UID)},
			"one that can assume who asked":        {w.as(assumed.UID), mine},
			"an identity that one can assume":      {mine, asAssumed},
			"who can assume the one that asked":    {asAssumed, mine},
			"a token that came from who asked":     {mine, actsFor},
			"who asked through the approver":       {actsFor, mine},
		} {
			request := w.asked(tt.ask, w.acme.UID)
			_, err := w.ApproveAccessRequest(tt.approve, request)
			want(t, name, err, fault.FailedPrecondition)
			_, err = w.HandBackAccessRequest(tt.ask, request)
			must(t, err)
		}
		request := w.asked(mine, w.acme.UID)
		_, err = w.ApproveAccessRequest(through, request)
		must(t, err)
	})
}

// timedLike creates an identity that holds a role on acme.
func (w *world) timedLike(role resource.UID) (resource.UID, context.Context) {
	w.t.Helper()
	name := string("holder " + w.acme.UID.NewChild()[41:])
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
	must(w.t, err)
	_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: i.UID, Role: role})
	must(w.t, err)
	return i.UID, w.as(i.UID)
}

// TestTwoApprovers checks that two different people must approve, and that both must hold the role at that time.
func TestTwoApprovers(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		w.rule(w.acme.UID, func(r *resource.AccessRule) { r.Approvers = 2 })
		uid, worker := w.worker(w.acme.UID, "groups.list")
		request := w.asked(worker, w.acme.UID)
		got, err := w.ApproveAccessRequest(w.owner, request)
		if must(t, err); got.State != resource.AccessPending || w.edits(uid, w.acme.UID) {
			t.Errorf("after one: %+v", got)
		}
		_, err = w.ApproveAccessRequest(w.owner, request)
		want(t, "the same twice", err, fault.FailedPrecondition)
		second := w.approver()
		got, err = w.ApproveAccessRequest(second, request)
		if must(t, err); got.State != resource.AccessGranted || len(got.Approvals) != 2 || !w.edits(uid, w.acme.UID) {
			t.Errorf("after two: %+v", got)
		}
	})
}

// TestFewestRequirements checks that, if several rules for one role allow a request, the one with the fewest
// requirements applies.
func TestFewestRequirements(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		strict := w.rule(w.acme.UID, func(r *resource.AccessRule) { r.Approvers, r.MaxDuration = 2, 24*time.Hour })
		w.rule(w.acme.UID, func(r *resource.AccessRule) { r.ReasonRequired = true })
		short := w.rule(w.acme.UID, func(r *resource.AccessRule) { r.MaxDuration = time.Hour })
		_, worker := w.worker(w.acme.UID, "groups.list")
		for name, tt := range map[string]struct {
			duration time.Duration
			reason   string
			rule     resource.UID
			field    string // field that the error names
		}{
			"short":                       {time.Hour, "r", short.UID, ""},
			"longer":                      {2 * time.Hour, "", strict.UID, ""},
			"longest":                     {24 * time.Hour, "r", strict.UID, ""},
			"longer than any rule allows": {25 * time.Hour, "r", "", "duration"},
		} {
			got, err := w.RequestAccessTo(worker, w.acme.UID,
				resource.AccessRequest{Role: editor, Duration: tt.duration, Reason: tt.reason})
			if tt.field == "" {
				must(t, err)
			} else if f := fault.From(err).Fields; len(f) != 1 || f[0].Subject != tt.field ||
				!strings.Contains(f[0].Description, "24h") {
				t.Errorf("%s: %v", name, err)
			}
			if got.Rule != tt.rule {
				t.Errorf("%s: rule %s, want %s", name, got.Rule, tt.rule)
			}
		}
	})
}

// TestBreakGlass checks that a break-glass rule grants a role immediately, to permitted callers, with a reason and an
// event.
func TestBreakGlass(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		viewerRole := resource.ManagedRoleUID("viewer")
		w.rule(w.acme.UID, func(r *resource.AccessRule) { r.BreakGlass, r.Requester = true, viewerRole })
		take := func(as context.Context, reason string) (iam.DatedRequest, error) {
			return w.RequestAccessTo(as, w.acme.UID,
				resource.AccessRequest{Role: editor, Duration: time.Hour, Reason: reason, BreakGlass: true})
		}
		_, worker := w.worker(w.acme.UID, "groups.list")
		_, err := take(worker, "fire")
		want(t, "without the role of the rule", err, fault.PermissionDenied)
		uid, viewer := w.timedLike(viewerRole)
		_, err = take(viewer, " ")
		want(t, "without a reason", err, fault.InvalidArgument)
		_, err = w.ask(viewer, w.acme.UID)
		want(t, "asking where one can only take", err, fault.PermissionDenied)
		got, err := take(viewer, "fire")
		if must(t, err); got.State != resource.AccessGranted || !w.edits(uid, w.acme.UID) {
			t.Errorf("taken: %+v", got)
		}
		events, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
		must(t, err)
		told := 0
		for _, e := range events {
			if e.Type == resource.AccessRequestTaken && e.Subject == got.UID {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%d events tell that glass was broken", told)
		}
	})
}

// TestBadAccessRequests checks the errors for invalid values in rules and requests.
func TestBadAccessRequests(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		w.rule(w.acme.UID, func(r *resource.AccessRule) { r.ReasonRequired = true })
		_, worker := w.worker(w.acme.UID, "groups.list")
		for name, tt := range map[string]struct {
			change func(*resource.AccessRequest)
			field  string
		}{
			"no role":           {func(r *resource.AccessRequest) { r.Role = "" }, "role_uid"},
			"no time":           {func(r *resource.AccessRequest) { r.Duration = 0 }, "duration"},
			"time that is gone": {func(r *resource.AccessRequest) { r.Duration = -time.Hour }, "duration"},
			"too long":          {func(r *resource.AccessRequest) { r.Duration = 9 * time.Hour }, "duration"},
			"a century":         {func(r *resource.AccessRequest) { r.Duration = 100 * 365 * 24 * time.Hour }, "duration"},
			"part of a second":  {func(r *resource.AccessRequest) { r.Duration = time.Hour + 1 }, "duration"},
			"no reason":         {func(r *resource.AccessRequest) { r.Reason = "\t" }, "reason"},
			"a long reason":     {func(r *resource.AccessRequest) { r.Reason = strings.Repeat("x", 1001) }, "reason"},
		} {
			r := resource.AccessRequest{Role: editor, Duration: time.Hour, Reason: "r"}
			tt.change(&r)
			_, err := w.RequestAccessTo(worker, w.acme.UID, r)
			if fields := fault.From(err).Fields; !errors.Is(err, fault.InvalidArgument) || len(fields) != 1 ||
				fields[0].Subject != tt.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, tt := range map[string]struct {
			change func(*resource.AccessRule)
			field  string
		}{
			"no role":              {func(r *resource.AccessRule) { r.Role = "" }, "role_uid"},
			"another's role":       {func(r *resource.AccessRule) { r.Role = w.other.UID.NewChild() }, "role_uid"},
			"no time":              {func(r *resource.AccessRule) { r.MaxDuration = 0 }, "max_duration"},
			"too long":             {func(r *resource.AccessRule) { r.MaxDuration = 31 * 24 * time.Hour }, "max_duration"},
			"three approvers":      {func(r *resource.AccessRule) { r.Approvers = 3 }, "approvers"},
			"minus one":            {func(r *resource.AccessRule) { r.Approvers = -1 }, "approvers"},
			"approved break-glass": {func(r *resource.AccessRule) { r.Approvers, r.BreakGlass = 1, true }, "approvers"},
			"another's requester": {
				func(r *resource.AccessRule) { r.Requester = w.other.UID.NewChild() }, "requester_role_uid",
			},
		} {
			r := resource.AccessRule{Role: editor, MaxDuration: time.Hour}
			tt.change(&r)
			_, err := w.CreateAccessRule(w.owner, w.acme.UID, r)
			if fields := fault.From(err).Fields; !errors.Is(err, fault.InvalidArgument) || len(fields) != 1 ||
				fields[0].Subject != tt.field {
				t.Errorf("rule: %s: %v", name, err)
			}
		}
		for range resource.MaxOpenRequests {
			w.asked(worker, w.acme.UID)
		}
		_, err := w.ask(worker, w.acme.UID)
		want(t, "too many", err, fault.FailedPrecondition)
		for i := range resource.MaxAccessRules - 1 {
			w.rule(w.acme.UID, func(r *resource.AccessRule) { r.MaxDuration = time.Duration(i+1) * time.Minute })
		}
		_, err = w.CreateAccessRule(w.owner, w.acme.UID, resource.AccessRule{Role: editor, MaxDuration: time.Hour})
		want(t, "too many rules", err, fault.FailedPrecondition)
	})
}

// TestWhatARequestRestsOnGoes checks that a request cannot be approved if its group, its requester or the approver's
// role was deleted, that a deleted rule allows no requests, and that a role cannot be deleted while a rule names it.
func TestWhatARequestRestsOnGoes(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		prod := w.group(w.acme.UID, "prod")
		rule := w.rule(prod.UID, nil)
		uid, worker := w.worker(w.acme.UID, "groups.list")
		approver, asApprover := w.timedLike(resource.OwnerRole)
		bindings, err := w.ListBindings(w.owner, resource.Filter{Identity: approver}, page.Params{})
		must(t, err)
		lost := w.asked(worker, prod.UID)
		must(t, w.DeleteBinding(w.owner, bindings.Items[0].UID))
		_, err = w.ApproveAccessRequest(asApprover, lost)
		want(t, "who has lost their role approves", err, fault.PermissionDenied)

		must(t, w.DeleteAccessRule(w.owner, rule.UID))
		_, err = w.ask(worker, prod.UID)
		want(t, "asking by a rule that is gone", err, fault.PermissionDenied)
		open := w.asked(worker, w.ruled(prod.UID))
		must(t, w.DeleteGroup(w.owner, prod.UID))
		got, err := w.GetAccessRequest(w.owner, open)
		if must(t, err); got.State != resource.AccessClosed {
			t.Errorf("a request of a group that is gone: %+v", got)
		}
		_, err = w.ApproveAccessRequest(w.owner, open)
		want(t, "approving it", err, fault.NotFound)

		custom, err := w.CreateRole(w.owner, w.acme.UID,
			resource.Role{Name: "custom", Capabilities: resource.CapabilitySet("groups.list")})
		must(t, err)
		w.rule(w.acme.UID, func(r *resource.AccessRule) { r.Role = custom.UID })
		want(t, "deleting a role that a rule names", w.DeleteRole(w.owner, custom.UID), fault.FailedPrecondition)

		w.rule(w.acme.UID, nil)
		orphan := w.asked(worker, w.acme.UID)
		must(t, w.DeleteIdentity(w.owner, uid))
		_, err = w.ApproveAccessRequest(w.owner, orphan)
		want(t, "approving for somebody who is gone", err, fault.FailedPrecondition)
	})
}

// ruled creates a rule on a group and returns the group.
func (w *world) ruled(on resource.UID) resource.UID { w.rule(on, nil); return on }

// TestApprovedAtOnce checks that one call wins if a request is approved, denied and handed back on two replicas at the
// same time, and that at most one binding is created.
func TestApprovedAtOnce(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		here := newWorld(t, storetest.Open(t, url), iam.Config{})
		there := here.Service
		if here.store.Replicated() {
			other := storetest.Open(t, url)
			c, err := authz.Load(t.Context(), other.DB, slog.New(slog.DiscardHandler))
			must(t, err)
			there = iam.New(other.DB, c, page.NewTokens([]byte("key"), time.Now), iam.Config{})
		}
		here.rule(here.acme.UID, nil)
		second := here.approver()
		for round := range 5 {
			uid, worker := here.worker(here.acme.UID, "groups.list")
			request := here.asked(worker, here.acme.UID)
			errs := make([]error, 4)
			var wg sync.WaitGroup
			for i, f := range []func() error{
				func() error { _, err := here.ApproveAccessRequest(here.owner, request); return err },
				func() error { _, err := there.ApproveAccessRequest(second, request); return err },
				func() error { _, err := there.DenyAccessRequest(here.owner, request); return err },
				func() error { _, err := here.ApproveAccessRequest(second, request); return err },
			} {
				wg.Go(func() { errs[i] = f() })
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				switch {
				case err == nil:
					won++
				case !errors.Is(err, fault.FailedPrecondition) && !errors.Is(err, fault.Aborted):
					t.Errorf("round %d: %v", round, err)
				}
			}
			grants, err := here.store.GrantsOf(t.Context(), uid)
			must(t, err)
			got, err := here.GetAccessRequest(here.owner, request)
			must(t, err)
			if granted := got.State == resource.AccessGranted; won != 1 || granted != (len(grants) == 2) || len(grants) > 2 {
				t.Errorf("round %d: %d won, %d grants, %v: %v", round, won, len(grants), got.State, fmt.Sprint(errs))
			}
		}
	})
}
