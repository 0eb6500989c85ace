package sessiondb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestPromises contains a test for each promise that the comments of the store make.
func TestPromises(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, s *iamtest.Store){
		"a session keeps what it was given":              sessionKeeps,
		"a refresh token is replaced by the next":        refreshRotates,
		"a refresh token used twice ends its session":    refreshReplayed,
		"a session ends when idle, and in any case":      sessionEnds,
		"a session that is ended is over":                sessionEnded,
		"whoever ends a session leaves an event":         sessionEndsTold,
		"those concerned are told of a session's end":    sessionEndsHeard,
		"sessions that are over are forgotten":           sessionsForgotten,
		"an identity goes with its sessions and denials": identityWithSessions,
	} {
		t.Run(name, func(t *testing.T) {
			iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
				f(t, s)
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}

// addSession starts a session. Its first refresh token is first, which expires
// an hour after epoch.
func addSession(t *testing.T, s *iamtest.Store, identity resource.UID, id, first string) resource.Session {
	t.Helper()
	n := iamtest.NewSession(identity, id)
	testkit.Must(t, s.StartSession(t.Context(), n, []byte(first), iamtest.Epoch.Add(time.Hour)))
	return n
}

// refresh exchanges the refresh token old for next, which expires in an hour.
func refresh(t *testing.T, s *iamtest.Store, old, next string) (resource.Session, time.Time, error) {
	return s.UseRefresh(t.Context(), []byte(old), []byte(next), s.Now().Add(time.Hour))
}

func sessionKeeps(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	n := addSession(t, s, i.UID, "one", "r1")
	got, err := s.Session(t.Context(), "one")
	testkit.Must(t, err)
	if diff := cmp.Diff(n, got); diff != "" {
		t.Error(diff)
	}
	bare := resource.Session{ID: "bare", Identity: i.UID, CreateTime: iamtest.Epoch.Add(time.Millisecond),
		UsedTime: iamtest.Epoch.Add(time.Millisecond), ExpireTime: iamtest.Epoch.Add(time.Hour)}
	testkit.Must(t, s.StartSession(t.Context(), bare, []byte("b1"), iamtest.Epoch.Add(time.Hour)))
	all, err := s.Sessions(t.Context(), i.UID)
	testkit.Must(t, err)
	if diff := cmp.Diff([]resource.Session{bare, n}, all); diff != "" {
		t.Error(diff)
	}
	s.Now = func() time.Time { return iamtest.Epoch.Add(time.Hour) }
	if all, err = s.Sessions(t.Context(), i.UID); err != nil || len(all) != 1 {
		t.Errorf("after one is over: %d sessions, %v", len(all), err)
	}
	_, err = s.Session(t.Context(), "none")
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "session", Name: "none"})
	missing := i.UID.Parent().NewChild()
	err = s.StartSession(t.Context(), iamtest.NewSession(missing, "x"), []byte("x"), iamtest.Epoch.Add(time.Hour))
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "identity", Name: string(missing)})
}

func refreshRotates(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	before := len(dbtest.Events(t, s.DB))
	addSession(t, s, i.UID, "one", "r1")
	now = iamtest.Epoch.Add(30 * time.Minute)
	n, ends, err := refresh(t, s, "r1", "r2")
	testkit.Must(t, err)
	if n.ID != "one" || n.Identity != i.UID || n.Act.Subject != "s" || !n.UsedTime.Equal(now) ||
		!ends.Equal(now.Add(time.Hour)) {
		t.Errorf("session %+v, the next token ends at %v", n, ends)
	}
	if got, err := s.Session(t.Context(), "one"); err != nil || !got.UsedTime.Equal(now) {
		t.Errorf("used at %v, %v, want %v", got.UsedTime, err, now)
	}
	_, _, err = refresh(t, s, "unknown", "x")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
	now = now.Add(time.Minute)
	_, _, err = refresh(t, s, "r2", "r3")
	testkit.Must(t, err)
	iamtest.WantVoid(t, s.IAMStore)
	if n := len(dbtest.Events(t, s.DB)) - before; n != 0 {
		t.Errorf("%d events of sessions", n)
	}
}

func refreshReplayed(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	addSession(t, s, i.UID, "one", "r1")
	addSession(t, s, i.UID, "two", "q1")
	_, _, err := refresh(t, s, "r1", "r2")
	testkit.Must(t, err)
	_, _, err = refresh(t, s, "r2", "r3")
	testkit.Must(t, err)
	_, _, err = refresh(t, s, "r1", "x")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
	for _, token := range []string{"r1", "r2", "r3", "x"} {
		if _, _, err := refresh(t, s, token, "y"); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%s after the replay: %v", token, err)
		}
	}
	_, err = s.Session(t.Context(), "one")
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	iamtest.WantVoid(t, s.IAMStore, resource.SessionSubject("one"))
	_, _, err = refresh(t, s, "q1", "q2") // the same person's other session continues
	testkit.Must(t, err)
}

func sessionEnds(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	addSession(t, s, i.UID, "idle", "r1")
	addSession(t, s, i.UID, "kept", "q1")
	now = iamtest.Epoch.Add(time.Hour - time.Millisecond)
	last := "q1"
	_, _, err := refresh(t, s, last, "q2")
	testkit.Must(t, err)
	now = iamtest.Epoch.Add(time.Hour)
	_, _, err = refresh(t, s, "r1", "r2")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
	last = "q2"
	for n := range 12 { // refreshes until the session itself ends
		now = iamtest.Epoch.Add(time.Hour + time.Duration(n+1)*44*time.Minute)
		next := fmt.Sprint("k", n)
		_, ends, err := refresh(t, s, last, next)
		testkit.Must(t, err)
		if want := now.Add(time.Hour); !ends.Equal(want) && !ends.Equal(iamtest.Epoch.Add(10*time.Hour)) ||
			ends.After(iamtest.Epoch.Add(10*time.Hour)) {
			t.Errorf("at %v the next token ends at %v", now, ends)
		}
		last = next
	}
	now = iamtest.Epoch.Add(10 * time.Hour)
	_, _, err = refresh(t, s, last, "end")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
	iamtest.WantVoid(t, s.IAMStore) // an expired session is not revoked, because its token was not stolen
}

func sessionEnded(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	addSession(t, s, i.UID, "one", "r1")
	ended, err := s.EndSession(t.Context(), "one")
	if err != nil || !ended {
		t.Fatalf("ended = %v, %v", ended, err)
	}
	iamtest.WantVoid(t, s.IAMStore, resource.SessionSubject("one"))
	if ended, err = s.EndSession(t.Context(), "one"); err != nil || ended {
		t.Errorf("ended again = %v, %v", ended, err)
	}
	_, _, err = refresh(t, s, "r1", "r2")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
}

// ends returns the events for sessions that were ended.
func ends(t *testing.T, s *iamtest.Store) (all []resource.Event) {
	t.Helper()
	for _, e := range dbtest.Events(t, s.DB) {
		if e.Type == resource.SessionEnded {
			all = append(all, e)
		}
	}
	return all
}

// sessionEndsTold ends a session in every possible way and checks the event. A
// session that has expired may have no event.
func sessionEndsTold(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	a := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
	link := []byte("link")
	_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
		a.Link = resource.Link{Digest: link, Expires: iamtest.Epoch.Add(time.Hour)}
		return nil
	})
	testkit.Must(t, err)
	end := func(id string) error { _, err := s.EndSession(t.Context(), id); return err }
	for _, way := range []struct {
		name string
		why  resource.EndReason
		end  func(id string) error
	}{
		{"asked for", resource.EndRequest, end},
		{"asked for with all others", resource.EndRequest, func(string) error {
			_, err := s.EndSessions(t.Context(), a.Identity, "")
			return err
		}},
		{"replayed", resource.EndReplay, func(id string) error {
			_, _, err := refresh(t, s, id, "next")
			testkit.Must(t, err)
			_, _, err = refresh(t, s, id, "again")
			testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
			return nil
		}},
		{"reset", resource.EndPasswordReset, func(string) error {
			_, err := s.FollowLink(t.Context(), link, func(*resource.Account) error { return nil })
			return err
		}},
		{"over", resource.EndUnspecified, func(id string) error { now = iamtest.Epoch.Add(10 * time.Hour); return end(id) }},
		{"gone with the identity", resource.EndIdentityDeleted, func(string) error {
			now = iamtest.Epoch
			return s.DeleteIdentity(t.Context(), a.Identity)
		}},
	} {
		before := len(ends(t, s))
		n := iamtest.NewSession(a.Identity, way.name)
		n.Home = org.UID
		testkit.Must(t, s.StartSession(t.Context(), n, []byte(way.name), iamtest.Epoch.Add(time.Hour)))
		testkit.Must(t, way.end(n.ID))
		testkit.Must(t, end(n.ID)) // the session has already ended, so there is no second event
		all := ends(t, s)[before:]
		if way.why == resource.EndUnspecified && len(all) == 0 {
			continue
		}
		if len(all) != 1 {
			t.Fatalf("%s: %d events", way.name, len(all))
		}
		var got resource.EndedSession
		testkit.Must(t, json.Unmarshal(all[0].Before, &got))
		if diff := cmp.Diff(resource.EndedSession{Session: n, Reason: way.why}, got,
			cmpopts.IgnoreFields(resource.Session{}, "UsedTime")); diff != "" {
			t.Errorf("%s: %s", way.name, diff)
		}
		if e := all[0]; e.Subject != a.Identity || e.Group != org.UID || len(e.After) != 0 {
			t.Errorf("%s: %+v", way.name, e)
		}
	}
}

// sessionEndsHeard checks that the event for the end of a session is recorded in the
// session's group, or in none, and not in other groups that know the person.
func sessionEndsHeard(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	org, other := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "other")
	role := iamtest.AddRole(t, s.IAMStore, org.UID, "role")
	person := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test").Identity
	iamtest.AddBinding(t, s.IAMStore, other.UID, person, role.UID)
	for _, home := range []resource.UID{org.UID, other.UID, ""} {
		before := len(ends(t, s))
		n := iamtest.NewSession(person, "of "+string(home))
		n.Home = home
		testkit.Must(t, s.StartSession(t.Context(), n, []byte(n.ID), iamtest.Epoch.Add(time.Hour)))
		_, err := s.EndSession(t.Context(), n.ID)
		testkit.Must(t, err)
		want := home
		if want == "" {
			want = "/" // the event belongs to no group
		}
		if got := ends(t, s)[before:]; len(got) != 1 || got[0].Group != want {
			t.Errorf("told to %v, want %s alone", got, want)
		}
	}
}

func sessionsForgotten(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	for n := range 25 {
		addSession(t, s, i.UID, fmt.Sprint("old", n), fmt.Sprint("o", n))
	}
	now = iamtest.Epoch.Add(10*time.Hour + time.Minute + time.Millisecond)
	fresh := iamtest.NewSession(i.UID, "fresh")
	fresh.ExpireTime = now.Add(time.Hour)
	testkit.Must(t, s.StartSession(t.Context(), fresh, []byte("f"), now.Add(time.Hour)))
	left := func() (n int) {
		for k := range 25 {
			if _, err := s.Session(t.Context(), fmt.Sprint("old", k)); err == nil {
				n++
			}
		}
		return n
	}
	if n := left(); n != 5 {
		t.Errorf("%d sessions are left of 25 that are over, want 5: a few are forgotten at a time", n)
	}
	fresh.ID = "fresher"
	testkit.Must(t, s.StartSession(t.Context(), fresh, []byte("g"), now.Add(time.Hour)))
	if n := left(); n != 0 {
		t.Errorf("%d sessions are left that are over", n)
	}
	if _, err := s.Session(t.Context(), "fresh"); err != nil {
		t.Error(err)
	}
}

func identityWithSessions(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, j := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddIdentity(t, s.IAMStore, org.UID, "j")
	addSession(t, s, i.UID, "one", "r1")
	addSession(t, s, j.UID, "two", "q1")
	_, _, err := refresh(t, s, "r1", "r2")
	testkit.Must(t, err)
	testkit.Must(t, s.RecordDenials(t.Context(), []resource.Denial{
		{Identity: i.UID, Time: iamtest.Epoch, RequestID: "a"}, {Identity: j.UID, Time: iamtest.Epoch, RequestID: "b"},
	}))
	testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
	iamtest.WantVoid(t, s.IAMStore, i.UID)
	_, _, err = refresh(t, s, "r2", "r3")
	testkit.WantFault(t, err, fault.Unauthenticated, fault.Resource{})
	if all, err := s.Denials(t.Context(), i.UID); err != nil || len(all) != 0 {
		t.Errorf("denials left: %v, %v", all, err)
	}
	if all, err := s.Denials(t.Context(), j.UID); err != nil || len(all) != 1 {
		t.Errorf("another's denials: %v, %v", all, err)
	}
	_, _, err = refresh(t, s, "q1", "q2")
	testkit.Must(t, err)
}
