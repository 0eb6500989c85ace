package scim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestDeparted checks that a deleted person keeps the roles for 30 days, in which the directory can bring the person
// back, and loses them afterwards in the organization of the directory only.
func TestDeparted(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		other, _ := w.found("other")
		people := map[string]resource.UID{}
		for _, name := range []string{"ben", "cyd"} {
			id := w.add(name)
			i, err := w.signIn("x-" + name)
			testkit.Must(t, err)
			people[name] = i.UID
			iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, i.UID, resource.OwnerRole)
			iamtest.AddBinding(t, w.store.IAMStore, other.UID, i.UID, resource.ManagedRoleUID("viewer"))
			w.want(204, "DELETE /Users/"+id, "")
		}
		roles := func(name string) int { return len(w.checker.GrantsOf(people[name])) }
		check := func(when string, ben, cyd int) {
			t.Helper()
			testkit.Must(t, w.RemoveDeparted(t.Context()))
			testkit.Must(t, w.checker.EnsureCurrent(t.Context()))
			if roles("ben") != ben || roles("cyd") != cyd {
				t.Errorf("%s: ben has %d roles, want %d; cyd has %d, want %d", when, roles("ben"), ben, roles("cyd"), cyd)
			}
		}
		check("immediately", 3, 3)
		w.now = w.now.Add(29 * 24 * time.Hour)
		check("after 29 days", 3, 3)
		w.add("cyd")
		w.now = w.now.Add(2 * 24 * time.Hour)
		check("after 31 days", 1, 3)
		if i, err := w.signIn("x-cyd"); err != nil || i.UID != people["cyd"] {
			t.Errorf("the returned person: %s, %v", i.UID, err)
		}
		if found := drifts(t, w); found != "" {
			t.Errorf("counters differ: %s", found)
		}
	})
}

// TestRequestsOfDeactivated checks that a deactivation closes the open requests of the person, and that the person's
// approvals of other requests no longer count.
func TestRequestsOfDeactivated(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		id := w.add("ben")
		ben, err := w.signIn("x-ben")
		testkit.Must(t, err)
		viewer := resource.ManagedRoleUID("viewer")
		rule := iamtest.AddRequest(t, w.store.IAMStore, w.org.UID, viewer).Rule
		request := func(of resource.UID) resource.UID {
			r := resource.AccessRequest{
				UID: w.org.UID.NewChild(), Rule: rule, Role: viewer, Identity: of, Duration: time.Hour, Approvers: 2,
				State: resource.AccessPending, CreateTime: w.store.Time(), UpdateTime: w.store.Time(),
			}
			testkit.Must(t, w.store.InsertAccessRequest(ctx, r))
			return r.UID
		}
		own, foreign := request(ben.UID), request(w.person("https://people.test", "asker"))
		_, err = w.store.ApproveAccess(ctx, foreign, ben.UID, iamtest.Anybody)
		testkit.Must(t, err)
		w.want(200, "PATCH /Users/"+id, `{"Operations":[{"op":"replace","path":"active","value":false}]}`)
		if got, err := w.store.AccessRequest(ctx, own); err != nil || got.State != resource.AccessClosed {
			t.Errorf("%+v, %v", got, err)
		}
		for i, want := range []resource.AccessState{resource.AccessPending, resource.AccessGranted} {
			approver := w.person("https://people.test", fmt.Sprint("approver", i))
			got, err := w.store.ApproveAccess(ctx, foreign, approver, iamtest.Anybody)
			if err != nil || got.State != want || len(got.Approvals) != i+1 {
				t.Errorf("approval %d: %+v, %v", i+1, got, err)
			}
		}
	})
}
