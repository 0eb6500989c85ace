package iam_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// in returns the time after a duration, in whole seconds.
func in(d time.Duration) time.Time { return time.Now().UTC().Add(d).Truncate(time.Second) }

// timedOwner creates an identity that owns acme from start to end.
func (w *world) timedOwner(start, end time.Time) (resource.BoundRole, context.Context) {
	w.t.Helper()
	name := string("timed " + w.acme.UID.NewChild()[41:])
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
	must(w.t, err)
	b, err := w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{
		Identity: i.UID, Role: resource.OwnerRole, StartTime: start, ExpireTime: end, Reason: "incident 7",
	})
	must(w.t, err)
	return b, w.as(i.UID)
}

// TestNobodyGivesForLonger checks that a caller with a temporary role can neither keep nor give it for longer.
func TestNobodyGivesForLonger(t *testing.T) {
	end := in(time.Hour)
	viewer := resource.ManagedRoleUID("viewer")
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		own, guest := w.timedOwner(time.Time{}, end)
		folder := w.group(w.acme.UID, "folder")
		workload, err := w.CreateIdentity(w.owner, w.acme.UID, person("lasting", "lasting"))
		must(t, err)
		lasting, err := w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: workload.UID, Role: viewer})
		must(t, err)
		later, err := w.CreateIdentity(w.owner, w.acme.UID, person("later", "later"))
		must(t, err)
		_, err = w.CreateBinding(w.owner, w.acme.UID,
			resource.RoleBinding{Identity: later.UID, Role: viewer, StartTime: in(2 * time.Hour)})
		must(t, err)
		custom, err := w.CreateRole(w.owner, w.acme.UID,
			resource.Role{Name: "custom", Capabilities: resource.CapabilitySet("groups.list")})
		must(t, err)
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(same))
		must(t, err)
		bind := func(until time.Time) func() error {
			return func() error {
				b := resource.RoleBinding{Identity: resource.NewRoot(), Role: viewer, ExpireTime: until}
				_, err := w.CreateBinding(guest, folder.UID, b)
				_, inBatch := w.CreateBindings(guest, folder.UID,
					[]resource.RoleBinding{{Identity: resource.NewRoot(), Role: viewer, ExpireTime: until}})
				if (err == nil) != (inBatch == nil) {
					return errors.Join(errors.New("one and a batch differ"), err, inBatch)
				}
				return err
			}
		}
		update := func(uid resource.UID, change func(*resource.RoleBinding)) func() error {
			return func() error {
				_, err := w.UpdateBinding(guest, uid, func(b *resource.RoleBinding) error { change(b); return nil })
				return err
			}
		}
		invite := func(until time.Time) func() error {
			return func() error {
				_, err := w.CreateInvite(guest, folder.UID, resource.GroupInvite{Role: viewer, ExpireTime: until}, time.Hour)
				return err
			}
		}
		become := func(uid resource.UID) func() error {
			return func() error {
				_, err := w.UpdateIdentity(guest, uid, func(i *resource.Identity) error {
					i.Relationship.ClaimMatch.Subject = "mine"
					return nil
				})
				return err
			}
		}
		for name, tt := range map[string]struct {
			do func() error
			ok bool
		}{
			"bind until then":     {bind(end), true},
			"bind until before":   {bind(end.Add(-time.Minute)), true},
			"bind for longer":     {bind(end.Add(time.Second)), false},
			"bind without an end": {bind(time.Time{}), false},
			"extend their own": {
				update(own.UID, func(b *resource.RoleBinding) { b.ExpireTime = end.Add(time.Hour) }), false,
			},
			"drop their own end":      {update(own.UID, func(b *resource.RoleBinding) { b.ExpireTime = time.Time{} }), false},
			"take a lasting binding":  {update(lasting.UID, func(b *resource.RoleBinding) { b.Identity = own.Identity }), false},
			"shorten another":         {update(lasting.UID, func(b *resource.RoleBinding) { b.ExpireTime = end }), true},
			"invite until then":       {invite(end), true},
			"invite for longer":       {invite(end.Add(time.Second)), false},
			"invite without an end":   {invite(time.Time{}), false},
			"become one that lasts":   {become(workload.UID), false},
			"become one that will be": {become(later.UID), false},
			"add to a role": {func() error {
				_, err := w.UpdateRole(guest, custom.UID, func(r *resource.Role) error {
					r.Capabilities = resource.CapabilitySet("groups.list", "groups.delete")
					return nil
				})
				return err
			}, false},
			"create a provider": {func() error {
				_, err := w.CreateProvider(guest, folder.UID, provider(same))
				return err
			}, false},
			"map a group": {func() error {
				_, err := w.CreateMapping(guest, p.UID,
					resource.ExternalGroupRoleMapping{ExternalGroup: "g", Role: viewer, Scope: w.acme.UID})
				return err
			}, false},
		} {
			if name == "shorten another" {
				continue // this case runs last, because other cases need the binding unchanged
			}
			if err := tt.do(); tt.ok && err != nil || !tt.ok && !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		err = bind(time.Time{})()
		if !strings.Contains(err.Error(), "yours ends earlier than what you want to give") {
			t.Errorf("the error does not say why: %v", err)
		}
		must(t, update(lasting.UID, func(b *resource.RoleBinding) { b.ExpireTime = end })())
		must(t, become(workload.UID)()) // the workload's binding no longer ends later than the caller's
	})
}

// TestBadTimes checks the errors for invalid times and reasons in bindings and invites.
func TestBadTimes(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		there, _ := w.timedOwner(time.Time{}, in(time.Hour))
		for name, tt := range map[string]struct {
			start, end time.Time
			reason     string
			field      string
		}{
			"an end in the past":      {end: in(-time.Hour), field: "expire_time"},
			"an end now":              {end: time.Now(), field: "expire_time"},
			"a start in the past":     {start: in(-time.Hour), end: in(time.Hour), field: "start_time"},
			"an end before its start": {start: in(2 * time.Hour), end: in(time.Hour), field: "expire_time"},
			"an end at its start":     {start: in(time.Hour), end: in(time.Hour), field: "expire_time"},
			"an end in a century":     {end: in(100 * 365 * 24 * time.Hour), field: "expire_time"},
			"a start in a century":    {start: in(100 * 365 * 24 * time.Hour), field: "start_time"},
			"year 1":                  {end: time.Time{}.Add(time.Hour), field: "expire_time"},
			"a long reason":           {reason: strings.Repeat("x", resource.MaxReason+1), field: "reason"},
			"a reason with a NUL":     {reason: "a\x00b", field: "reason"},
		} {
			b := resource.RoleBinding{Identity: resource.NewRoot(), Role: resource.OwnerRole, StartTime: tt.start,
				ExpireTime: tt.end, Reason: tt.reason}
			_, one := w.CreateBinding(w.owner, w.acme.UID, b)
			_, batch := w.CreateBindings(w.owner, w.acme.UID, []resource.RoleBinding{b})
			_, changed := w.UpdateBinding(w.owner, there.UID, func(b *resource.RoleBinding) error {
				b.StartTime, b.ExpireTime, b.Reason = tt.start, tt.end, tt.reason
				return nil
			})
			_, invited := w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{
				Role: resource.OwnerRole, StartTime: tt.start, ExpireTime: tt.end, Reason: tt.reason,
			}, time.Hour)
			for where, err := range map[string]error{tt.field: one, "requests[0].role_binding." + tt.field: batch,
				"of update": changed, "of invite": invited} {
				field := tt.field
				if strings.HasPrefix(where, "requests") {
					field = where
				}
				if fields := fault.From(err).Fields; !errors.Is(err, fault.InvalidArgument) || len(fields) != 1 ||
					fields[0].Subject != field {
					t.Errorf("%s (%s): %v, %v", name, where, err, fields)
				}
			}
		}
	})
}

// TestWhatIsOver checks that expired and upcoming bindings grant nothing, and that callers who may list them see them.
func TestWhatIsOver(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		b, guest := w.timedOwner(time.Time{}, in(time.Hour))
		later, early := w.timedOwner(in(time.Hour), time.Time{})
		must(t, w.may(guest))
		want(t, "before it starts", w.may(early), fault.PermissionDenied)
		narrow := authz.Caller{Identity: b.Identity, Scopes: []resource.UID{w.acme.UID}}
		must(t, w.may(authz.WithCaller(t.Context(), narrow)))
		w.expire(b.UID)
		want(t, "when it is over", w.may(guest), fault.PermissionDenied)
		want(t, "when it is over, with a narrowed token", w.may(authz.WithCaller(t.Context(), narrow)),
			fault.PermissionDenied)
		for _, who := range []resource.BoundRole{b, later} {
			a, err := w.CheckAccess(w.owner, who.Identity, resource.GroupsDelete, w.acme.UID)
			if must(t, err); a.Allowed || len(a.Items) != 0 {
				t.Errorf("CheckAccess: %+v", a)
			}
		}
		can, err := w.ListAccess(w.owner, resource.GroupsDelete, w.acme.UID, page.Params{})
		if must(t, err); can.Total != 1 {
			t.Errorf("%d can delete, want the owner", can.Total)
		}
		got, err := w.ListGroups(guest, resource.Filter{}, page.Params{})
		if must(t, err); got.Total != 0 {
			t.Errorf("a list has %d groups", got.Total)
		}
		all, err := w.ListBindings(w.owner, resource.Filter{}, page.Params{})
		must(t, err)
		states := map[resource.UID]resource.BindingState{}
		for _, b := range all.Items {
			states[b.UID] = b.State(b.Now)
		}
		if len(states) != 3 || states[b.UID] != resource.BindingOver || states[later.UID] != resource.BindingUpcoming {
			t.Errorf("states: %v", states)
		}
		_, err = w.UpdateBinding(w.owner, b.UID,
			func(b *resource.RoleBinding) error { b.ExpireTime = in(time.Hour); return nil })
		want(t, "reviving it", err, fault.FailedPrecondition)
		for what, err := range map[string]error{
			"get": func() error { _, err := w.GetBinding(w.rival, b.UID); return err }(),
			"extend": func() error {
				_, err := w.UpdateBinding(w.rival, later.UID, func(*resource.RoleBinding) error { return nil })
				return err
			}(),
			"delete": w.DeleteBinding(w.rival, b.UID),
		} {
			want(t, "another organization: "+what, err, fault.PermissionDenied)
		}
	})
}

// may tries to update acme as the caller in ctx, and returns the error.
func (w *world) may(ctx context.Context) error {
	_, err := w.UpdateGroup(ctx, w.acme.UID, func(*resource.Group) error { return nil })
	return err
}

// expire makes a binding expire by changing its row, because no method can set an expiry in the past.
func (w *world) expire(uid resource.UID) {
	w.t.Helper()
	_, err := w.store.UpdateBinding(w.t.Context(), uid,
		func(b *resource.RoleBinding) error { b.ExpireTime = in(-time.Second); return nil })
	must(w.t, err)
}
