package scim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// addMany creates users u0, u1, …, and returns their ids.
func (w *world) addMany(n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		ids = append(ids, w.add(fmt.Sprint("u", i)))
	}
	return ids
}

// takings are the ways in which a directory takes away the access of user number i.
var takings = []func(w *world, id string, i int) reply{
	func(w *world, id string, _ int) reply {
		return w.send("PATCH /Users/"+id, `{"Operations":[{"op":"Replace","path":"active","value":"False"}]}`)
	},
	func(w *world, id string, i int) reply {
		return w.send("PUT /Users/"+id, fmt.Sprintf(`{"userName":"u%d","externalId":"x-u%d","active":false}`, i, i))
	},
	func(w *world, id string, _ int) reply { return w.send("DELETE /Users/"+id, "") },
	func(w *world, id string, i int) reply {
		return w.send("PATCH /Users/"+id, fmt.Sprintf(`{"Operations":[{"op":"replace","path":"externalId","value":"y%d"}]}`,
			i))
	},
}

// suspended returns the numbers of the users among the first n whose person has no access.
func (w *world) suspended(n int) (numbers []int) {
	w.t.Helper()
	for i := range n {
		if w.checker.Suspended(w.personOf(fmt.Sprint("u", i))) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func (w *world) heldCount() int64 {
	w.t.Helper()
	d, err := w.Directory(w.owner, w.provider.UID)
	testkit.Must(w.t, err)
	return d.Held
}

// TestHeld checks that the fifth of 20 people is held, whatever the request, that nothing of a held change is done or
// shown as done, and that a confirmation makes the changes and a discard does not.
func TestHeld(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ids := w.addMany(20)
		w.now = w.now.Add(48 * time.Hour)
		for i := range 4 {
			if got := takings[i](w, ids[i], i); got.status/100 != 2 {
				t.Fatalf("change %d: %d %s", i, got.status, got.text)
			}
		}
		before := w.eventsOf(resource.DirectoryUpdated)
		for i := 4; i < 8; i++ {
			for range 2 { // also when the directory repeats it
				if got := takings[i%4](w, ids[i], i); got.status != 409 || !strings.Contains(got.text, "held") {
					t.Fatalf("change %d: %d %s", i, got.status, got.text)
				}
			}
			got := w.want(200, "GET /Users/"+ids[i], "").body
			version := got["meta"].(map[string]any)["version"]
			if got["active"] != true || got["externalId"] != fmt.Sprint("x-u", i) || version != `W/"1"` {
				t.Errorf("user %d shows a held change: %v", i, got)
			}
		}
		if got := w.suspended(20); !slices.Equal(got, []int{0, 1, 2, 3}) || w.heldCount() != 4 ||
			w.eventsOf(resource.DirectoryUpdated) != before+1 || w.eventsOf(resource.IdentityDeactivated) != 4 {
			t.Fatalf("without access: %v, held: %d", got, w.heldCount())
		}
		w.now = w.now.Add(2 * time.Hour)
		if got := takings[0](w, ids[9], 9); got.status != 409 {
			t.Errorf("more, as long as others are held: %d %s", got.status, got.text)
		}
		// The directory takes one back.
		w.want(200, "PATCH /Users/"+ids[9], `{"Operations":[{"op":"replace","path":"active","value":true}]}`)
		held, err := w.Held(w.owner, w.provider.UID, 100)
		if err != nil || len(held) != 4 || w.heldCount() != 4 || held[2].Kind != resource.HeldDeletion ||
			held[2].Identity != w.personOf("u6") || held[2].Name == "" {
			t.Fatalf("held: %+v, %v", held, err)
		}
		testkit.Must(t, w.update(scim.Settings{Held: scim.Confirm}))
		if got := w.suspended(20); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) || w.heldCount() != 0 {
			t.Errorf("after the confirmation: %v, held: %d", got, w.heldCount())
		}
		if got := w.want(200, "GET /Users/"+ids[4], "").body; got["active"] != false {
			t.Errorf("a confirmed deactivation: %v", got)
		}
		w.want(404, "GET /Users/"+ids[6], "")
		if got := takings[0](w, ids[10], 10); got.status != 409 {
			t.Errorf("a further change within the hour: %d %s", got.status, got.text)
		}
		testkit.Must(t, w.update(scim.Settings{Held: scim.Discard}))
		if w.checker.Suspended(w.personOf("u10")) || w.heldCount() != 0 {
			t.Error("a discarded change was made")
		}
		if err := w.update(scim.Settings{Held: scim.Discard}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("nothing to decide: %v", err)
		}
		if found := drifts(t, w); found != "" {
			t.Error(found)
		}
	})
}

// TestHeldCannotBeBypassed tries to take away the access of more people than the limit in small pieces, with people who
// come back in between, with new users that raise the number of people, and with users that are created as inactive.
func TestHeldCannotBeBypassed(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ids := w.addMany(20)
		w.now = w.now.Add(48 * time.Hour)
		for i := range 60 { // do not raise the limit on their first day
			w.add(fmt.Sprint("new", i))
		}
		for i := range 4 {
			w.want(204, "DELETE /Users/"+ids[i], "")
			w.add(fmt.Sprint("u", i))
		}
		w.now = w.now.Add(59 * time.Minute)
		w.want(409, "DELETE /Users/"+ids[4], "")
		for name, body := range map[string]string{
			"a person who signed in": `{"userName":"z","externalId":"signed-in","active":false}`,
		} {
			if _, err := w.signIn("signed-in"); err != nil {
				t.Fatal(err)
			}
			if got := w.send("POST /Users", body); got.status != 409 {
				t.Errorf("%s: %d %s", name, got.status, got.text)
			}
		}
		if got := w.suspended(20); len(got) > 0 || w.heldCount() != 2 {
			t.Errorf("without access: %v, held: %d", got, w.heldCount())
		}
		testkit.Must(t, w.update(scim.Settings{Held: scim.Confirm}))
		if _, err := w.signIn("signed-in"); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("after the confirmation: %v", err)
		}
	})
}

// TestHeldLimit checks the limits at their borders, and the permission to change them.
func TestHeldLimit(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ids := w.addMany(30) // all on their first day
		for i := range 6 {   // 20 % of 30
			w.want(204, "DELETE /Users/"+ids[i], "")
		}
		w.want(409, "DELETE /Users/"+ids[6], "")
		testkit.Must(t, w.update(scim.Settings{Held: scim.Discard, HoldPercent: new(int32(50))}))
		for i := 6; i < 15; i++ {
			w.want(204, "DELETE /Users/"+ids[i], "")
		}
		w.want(409, "DELETE /Users/"+ids[15], "")
		testkit.Must(t, w.update(scim.Settings{
			Held: scim.Discard, HoldPercent: new(int32(1)), HoldMinimum: new(int32(17)),
		}))
		w.want(204, "DELETE /Users/"+ids[15], "")
		w.want(409, "DELETE /Users/"+ids[16], "")
		w.now = w.now.Add(61 * time.Minute)
		testkit.Must(t, w.update(scim.Settings{Held: scim.Discard}))
		w.want(204, "DELETE /Users/"+ids[16], "")
		for name, change := range map[string]scim.Settings{
			"no percent": {HoldPercent: new(int32(0))}, "101 percent": {HoldPercent: new(int32(101))},
			"no minimum": {HoldMinimum: new(int32(0))}, "an unknown decision": {Held: 3},
		} {
			if err := w.update(change); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestWhoDecides checks that only an assigned owner or an operator decides about held changes: no editor, no owner
// through a claim, no narrowed token, no stranger, and nobody whose own access is to be taken away.
func TestWhoDecides(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ids := w.addMany(8)
		as := func(person resource.UID) authz.Caller { return authz.Caller{Identity: person, Issued: time.Now()} }
		held := w.personOf("u4")
		iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, held, resource.OwnerRole)
		editor := w.person("https://people.test", "editor")
		iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, editor, resource.ManagedRoleUID("editor"))
		mapped := w.person("https://people.test", "mapped")
		b := iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, mapped, resource.OwnerRole)
		if _, err := w.store.Exec(t.Context(), `INSERT INTO mapped_bindings (binding, identity, provider)
			SELECT b.seg, b.identity, p.seg FROM role_bindings AS b, identity_providers AS p WHERE b.uid = $1`,
			string(b.UID)); err != nil {
			t.Fatal(err)
		}
		owner, _ := authz.CallerFrom(w.owner)
		narrowed := owner
		narrowed.Scopes = []resource.UID{w.org.UID}
		for i := range ids[:5] {
			w.send("DELETE /Users/"+ids[i], "")
		}
		if w.heldCount() != 1 {
			t.Fatalf("%d changes are held", w.heldCount())
		}
		d, err := w.Directory(w.owner, w.provider.UID)
		testkit.Must(t, err)
		operator := w.person("https://people.test", "operator")
		s := scim.New(w.store.DB, w.checker, scim.Config{Log: slog.New(slog.DiscardHandler), Operator: func(
			ctx context.Context,
		) bool {
			c, _ := authz.CallerFrom(ctx)
			return c.Identity == operator
		}})
		for name, c := range map[string]authz.Caller{
			"an editor": as(editor), "an owner through a claim": as(mapped), "a narrowed token": narrowed,
			"a stranger": as(w.person("https://people.test", "stranger")), "the person itself": as(held),
		} {
			for what, change := range map[string]scim.Settings{
				"confirms": {Held: scim.Confirm}, "discards": {Held: scim.Discard},
				"raises the limit": {HoldPercent: new(int32(100))},
			} {
				_, err := s.Update(authz.WithCaller(t.Context(), c), w.provider.UID, change, d.ETag())
				if !errors.Is(err, fault.PermissionDenied) {
					t.Errorf("%s %s: %v", name, what, err)
				}
			}
		}
		asOperator := authz.WithCaller(t.Context(), as(operator))
		_, err = s.Update(asOperator, w.provider.UID, scim.Settings{Held: scim.Discard, Required: new(true)}, d.ETag())
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("an operator who changes other settings, too: %v", err)
		}
		if held, err := s.Held(asOperator, w.provider.UID, 1); err != nil || len(held) != 1 {
			t.Errorf("an operator sees %v, %v", held, err)
		}
		_, err = s.Update(w.owner, w.provider.UID, scim.Settings{Held: scim.Confirm}, "z")
		if !errors.Is(err, fault.Aborted) {
			t.Errorf("an old etag: %v", err)
		}
		d, err = s.Update(asOperator, w.provider.UID, scim.Settings{Held: scim.Discard}, d.ETag())
		if err != nil || d.Held != 0 || w.checker.Suspended(held) {
			t.Errorf("an operator: %+v, %v", d, err)
		}
	})
}

// TestHeldAtOnce deactivates people with concurrent requests, on PostgreSQL through two replicas. Only as many people
// lose access as the limit allows, and every other change is held.
func TestHeldAtOnce(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		other := w.Service
		if w.store.Replicated() {
			other = scim.New(iamtest.Open(t, w.url).DB, w.replica(), scim.Config{
				BaseURL: "https://here.test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
			})
		}
		const users = 12
		ids := w.addMany(users)
		first := w.Service
		patch := `{"Operations":[{"op":"replace","value":{"active":false}}]}`
		for i := 0; i < users; i += 2 {
			send := func(s *scim.Service, i int) func() error {
				return func() error {
					if status := sendThrough(w, s, "PATCH", "/Users/"+ids[i], patch); status != 200 && status != 409 {
						return fmt.Errorf("user %d: %d", i, status)
					}
					return nil
				}
			}
			a, b := dbtest.AtOnce(send(first, i), send(other, i+1))
			testkit.Must(t, errors.Join(a, b))
		}
		var suspended int
		testkit.Must(t, w.store.Row(t.Context(), `SELECT count(*) FROM suspensions`, nil, &suspended))
		if suspended != 4 || w.heldCount() != users-4 {
			t.Errorf("%d people have lost access, %d changes are held", suspended, w.heldCount())
		}
	})
}

// sendThrough sends a request of the world's directory to a replica, and returns the status of the answer.
func sendThrough(w *world, s *scim.Service, method, path, body string) int {
	r := httptest.NewRequestWithContext(w.t.Context(), method, w.Endpoint(w.provider.UID)+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.token)
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, r)
	return rec.Code
}
