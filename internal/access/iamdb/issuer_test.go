package iamdb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func newDenial(identity resource.UID, at time.Time, request string) resource.Denial {
	return resource.Denial{
		Identity: identity, Time: at, RequestID: request, Message: "Permission denied: invalid \"sub\"",
		Remote: "192.0.2.1", Verified: true,
		Checks: []resource.Check{{Claim: "sub", Expected: "a", Received: "b", Cause: "c"}},
	}
}

func newExchange(identity resource.UID, at time.Time, request string) resource.Exchange {
	return resource.Exchange{
		Identity: identity, Time: at, RequestID: request, Issuer: "https://issuer.example.com", Subject: "main\x00",
		Audience: []string{"https://holdfast.example.com"}, Remote: "192.0.2.1", Count: 3,
	}
}

func exchangesKept(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, j := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddIdentity(t, s.IAMStore, org.UID, "j")
	before := len(dbtest.Events(t, s.DB))
	batch := []resource.Exchange{newExchange(org.UID.NewChild(), iamtest.Epoch, "of nobody"), newExchange(j.UID,
		iamtest.Epoch, "other")}
	var want []resource.Exchange
	for n := range 25 {
		e := newExchange(i.UID, iamtest.Epoch.Add(time.Duration(n)*time.Second), fmt.Sprint("r", n))
		batch = append(batch, e)
		want = append([]resource.Exchange{e}, want...)
	}
	testkit.Must(t, s.RecordExchanges(t.Context(), batch))
	got, err := s.Exchanges(t.Context(), i.UID)
	testkit.Must(t, err)
	if diff := cmp.Diff(want[:resource.ExchangesKept], got); diff != "" {
		t.Error(diff)
	}
	if got, err = s.Exchanges(t.Context(), j.UID); err != nil || len(got) != 1 {
		t.Errorf("%d exchanges of another, %v", len(got), err)
	}
	now = iamtest.Epoch.Add(resource.ExchangeMemory + 20*time.Second)
	testkit.Must(t, s.RecordExchanges(t.Context(), nil))
	if got, err = s.Exchanges(t.Context(), i.UID); err != nil || len(got) != 5 {
		t.Errorf("after thirty days: %d exchanges, %v, want five", len(got), err)
	}
	if n := len(dbtest.Events(t, s.DB)) - before; n != 0 {
		t.Errorf("%d events of exchanges", n)
	}
	testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
	if got, err = s.Exchanges(t.Context(), i.UID); err != nil || len(got) != 0 {
		t.Errorf("%d exchanges of nobody, %v", len(got), err)
	}
}

func denialsKept(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, j := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddIdentity(t, s.IAMStore, org.UID, "j")
	before := len(dbtest.Events(t, s.DB))
	batch := []resource.Denial{newDenial(org.UID.NewChild(), iamtest.Epoch, "of nobody")}
	var want []resource.Denial
	for n := range 25 {
		d := newDenial(i.UID, iamtest.Epoch.Add(time.Duration(n)*time.Millisecond), fmt.Sprint("r", n))
		batch = append(batch, d)
		want = append([]resource.Denial{d}, want...)
	}
	testkit.Must(t, s.RecordDenials(t.Context(), append(batch, newDenial(j.UID, iamtest.Epoch, "other"))))
	got, err := s.Denials(t.Context(), i.UID)
	testkit.Must(t, err)
	if diff := cmp.Diff(want[:resource.ExchangesKept], got); diff != "" {
		t.Error(diff)
	}
	late := newDenial(i.UID, iamtest.Epoch.Add(time.Second), "late")
	testkit.Must(t, s.RecordDenials(t.Context(), []resource.Denial{late}))
	if got, err = s.Denials(t.Context(), i.UID); err != nil || len(got) != resource.ExchangesKept ||
		got[0].RequestID != "late" {
		t.Errorf("%d denials, %v, newest %v", len(got), err, got[0])
	}
	now = iamtest.Epoch.Add(resource.ExchangeMemory + 100*time.Millisecond)
	testkit.Must(t, s.RecordDenials(t.Context(), nil))
	if got, err = s.Denials(t.Context(), i.UID); err != nil || len(got) != 1 {
		t.Errorf("after thirty days: %d denials, %v, want the late one", len(got), err)
	}
	if got, err = s.Denials(t.Context(), j.UID); err != nil || len(got) != 0 {
		t.Errorf("after thirty days: %d denials of another, %v", len(got), err)
	}
	if n := len(dbtest.Events(t, s.DB)) - before; n != 0 {
		t.Errorf("%d events of denials", n)
	}
}

func seenQuietly(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch.Add(time.Hour) }
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	before := len(dbtest.Events(t, s.DB))
	revision, err := s.Revision(t.Context())
	testkit.Must(t, err)
	at := iamtest.Epoch.Add(time.Minute)
	testkit.Must(t, s.RecordLastSeen(t.Context(), i.UID, at))
	// a report with an older time, from a slow replica, changes nothing
	testkit.Must(t, s.RecordLastSeen(t.Context(), i.UID, iamtest.Epoch))
	testkit.Must(t, s.RecordLastSeen(t.Context(), i.UID.Parent().NewChild(), at))
	i.LastSeenTime = at
	testkit.WantSame(t, s.Identity, i.UID, i)
	if n := len(dbtest.Events(t, s.DB)) - before; n != 0 {
		t.Errorf("%d events", n)
	}
	if same, err := s.Revision(t.Context()); err != nil || same != revision {
		t.Errorf("revision %d, %v, want %d", same, err, revision)
	}
}

func issuerStates(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch
	s.Now = func() time.Time { return now }
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	for _, name := range []string{"https://b.test", "https://a.test", "https://b.test"} {
		i := iamtest.NewIdentity(org.UID, "i")
		i.Relationship.ClaimMatch.Issuer = name
		testkit.Must(t, s.InsertIdentity(t.Context(), i))
	}
	var all []string
	for next := ""; ; {
		var err error
		next, err = s.NextIssuer(t.Context(), next)
		testkit.Must(t, err)
		if next == "" {
			break
		}
		all = append(all, next)
	}
	if diff := cmp.Diff([]string{"https://a.test", "https://b.test"}, all); diff != "" {
		t.Error(diff)
	}
	state := func() resource.IssuerState {
		t.Helper()
		got, err := s.IssuerState(t.Context(), "https://a.test")
		testkit.Must(t, err)
		return got
	}
	if diff := cmp.Diff(resource.IssuerState{Issuer: "https://a.test"}, state()); diff != "" {
		t.Errorf("before the first look: %s", diff)
	}
	claim := func(due time.Time, want bool) {
		t.Helper()
		if got, err := s.ClaimIssuer(t.Context(), "https://a.test", due); err != nil || got != want {
			t.Errorf("claimed = %v, %v, want %v", got, err, want)
		}
	}
	claim(now, true)
	claim(now, false)
	good := resource.IssuerState{Issuer: "https://a.test", CheckTime: now, SuccessTime: now,
		Keys: []resource.IssuerKey{{ID: "k", Algorithm: "ES256"}}}
	testkit.Must(t, s.NoteIssuer(t.Context(), good))
	if diff := cmp.Diff(good, state()); diff != "" {
		t.Error(diff)
	}
	now = now.Add(time.Hour)
	claim(now, true)
	testkit.Must(t, s.NoteIssuer(t.Context(), resource.IssuerState{Issuer: "https://a.test", CheckTime: now,
		Problem: "away"}))
	good.CheckTime, good.Problem = now, "away" // the keys and the time of the last success are kept
	if diff := cmp.Diff(good, state()); diff != "" {
		t.Error(diff)
	}
	testkit.Must(t, s.DropIssuers(t.Context()))
	if diff := cmp.Diff(good, state()); diff != "" {
		t.Errorf("one that is trusted was dropped: %s", diff)
	}
	found, complete, err := s.IdentitiesOf(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, "https://a.test", 10)
	if err != nil || !complete || len(found) != 1 {
		t.Fatalf("%d identities, %v, %v", len(found), complete, err)
	}
	testkit.Must(t, s.DeleteIdentity(t.Context(), found[0].UID))
	testkit.Must(t, s.DropIssuers(t.Context()))
	if diff := cmp.Diff(resource.IssuerState{Issuer: "https://a.test"}, state()); diff != "" {
		t.Errorf("one that nobody trusts was kept: %s", diff)
	}
}

func identitiesOfIssuer(t *testing.T, s *iamtest.Store) {
	org, other := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "other")
	for range 3 {
		iamtest.AddIdentity(t, s.IAMStore, org.UID, "i")
		iamtest.AddIdentity(t, s.IAMStore, other.UID, "i")
	}
	pattern := iamtest.NewIdentity(org.UID, "p")
	pattern.Relationship.ClaimMatch.Issuer, pattern.Relationship.ClaimMatch.IssuerPattern = "", "https://.*"
	testkit.Must(t, s.InsertIdentity(t.Context(), pattern))
	for _, tt := range []struct {
		organization    resource.UID
		issuer, subject string
		limit, n        int
	}{
		{org.UID, "https://issuer.test", "i", 10, 3},
		{org.UID, "https://issuer.test", "i", 2, 2},
		{org.UID, "https://issuer.test", "p", 10, 1},
		{org.UID, "https://other.test", "p", 10, 1}, // its issuer is a pattern
		{org.UID, "https://other.test", "i", 10, 0},
		{other.UID, "https://issuer.test", "i", 10, 3},
		{other.UID, "https://issuer.test", "p", 10, 0},
		{resource.NewRoot(), "https://issuer.test", "i", 10, 0},
	} {
		got, err := s.IdentitiesTrusting(t.Context(), tt.organization, tt.issuer, tt.subject, tt.limit)
		if err != nil || len(got) != tt.n {
			t.Errorf("%d identities of %s may trust %q, %v, want %d", len(got), tt.organization, tt.subject, err, tt.n)
		}
		for _, uid := range got {
			if !tt.organization.Covers(uid) {
				t.Errorf("%s is in another organization", uid)
			}
		}
	}
	under := store.Reach{Under: []resource.UID{org.UID}}
	for _, tt := range []struct {
		issuer   string
		limit, n int
		complete bool
	}{{"https://issuer.test", 10, 3, true}, {"https://issuer.test", 2, 2, false}, {"", 10, 1,
		true}, {"https://nobody.test", 10, 0, true}} {
		got, complete, err := s.IdentitiesOf(t.Context(), under, tt.issuer, tt.limit)
		if err != nil || len(got) != tt.n || complete != tt.complete {
			t.Errorf("%q: %d identities, complete %v, %v, want %d, %v", tt.issuer, len(got), complete, err, tt.n, tt.complete)
		}
		for _, i := range got {
			if !org.UID.Covers(i.UID) {
				t.Errorf("%s is out of reach", i.UID)
			}
		}
	}
}

func newSigningKey(id string, at time.Time) tokendb.SigningKey {
	return tokendb.SigningKey{ID: id, Algorithm: "ES256", Sealed: []byte("sealed " + id), CreateTime: at}
}

func signingKeysRotate(t *testing.T, s *iamtest.Store) {
	testkit.Must(t, s.InsertFirstSigningKey(t.Context(), newSigningKey("one", iamtest.Epoch)))
	revision, err := s.Revision(t.Context())
	testkit.Must(t, err)
	for _, tt := range []struct {
		key, newest string
		want        bool
	}{{"two", "one", true}, {"late", "one", false}, {"three", "two", true}} {
		added, err := s.AddSigningKey(t.Context(), newSigningKey(tt.key,
			iamtest.Epoch.Add(time.Duration(len(tt.key))*time.Second)),
			tt.newest)
		if err != nil || added != tt.want {
			t.Errorf("%s after %s: added = %v, %v", tt.key, tt.newest, added, err)
		}
	}
	rsa := func(id string) tokendb.SigningKey {
		return tokendb.SigningKey{ID: id, Algorithm: "RS256", Sealed: []byte("sealed " + id),
			CreateTime: iamtest.Epoch.Add(time.Hour)}
	}
	for _, pair := range [][2]string{{"two", "two r"}, {"three", "three r"}, {"three", "late r"}, {"gone", "gone r"}} {
		testkit.Must(t, s.PairSigningKey(t.Context(), pair[0], rsa(pair[1])))
	}
	testkit.Must(t, s.DropSigningKey(t.Context(), "two"))
	testkit.Must(t, s.PairSigningKey(t.Context(), "two", rsa("two r")))
	testkit.WantFault(t, s.DropSigningKey(t.Context(), "two"), fault.NotFound, fault.Resource{Type: "signing key",
		Name: "two"})
	got, err := s.SigningKeys(t.Context())
	testkit.Must(t, err)
	three, pair := newSigningKey("three", iamtest.Epoch.Add(5*time.Second)), rsa("three r")
	three.Pair = &pair
	if diff := cmp.Diff([]tokendb.SigningKey{three, newSigningKey("one", iamtest.Epoch)}, got); diff != "" {
		t.Error(diff)
	}
	if added, err := s.AddSigningKey(t.Context(), newSigningKey("behind", iamtest.Epoch.Add(-time.Hour)),
		"three"); err != nil ||
		!added {
		t.Errorf("by a clock that is behind: added = %v, %v", added, err)
	}
	if got, err = s.SigningKeys(t.Context()); err != nil || got[0].ID != "behind" {
		t.Errorf("the newest key is %v, %v", got[0].ID, err)
	}
	changes, complete, err := s.GrantChanges(t.Context(), revision)
	testkit.Must(t, err)
	if !complete || len(changes) != 6 {
		t.Fatalf("%d changes, want one of each: %v", len(changes), changes)
	}
	for _, c := range changes {
		if c.Identity != resource.SigningKeysSubject {
			t.Errorf("the change is of %q", c.Identity)
		}
	}
}

// issuerDuels contains pairs of conflicting writes to sessions, denials and keys.
var issuerDuels = map[string]func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel{
	"refresh twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		n := liveSession(t, s, iamtest.AddIdentity(t, s.IAMStore, org, "i").UID)
		use := func(next string) func() error {
			return func() error {
				_, _, err := s.UseRefresh(t.Context(), []byte(n.ID), []byte(n.ID+next), time.Now().Add(time.Hour))
				return err
			}
		}
		return dbtest.NewDuel(use("a"), use("b"), func(a, b error) error {
			if err := dbtest.OneOf(fault.Unauthenticated, fault.Unauthenticated)(a, b); err != nil {
				return err
			}
			_, err := s.Session(t.Context(), n.ID)
			if !errors.Is(err, fault.NotFound) {
				return fmt.Errorf("a token was used twice, and its session goes on: %v", err)
			}
			return nil
		})
	},
	"refresh and end session": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		n := liveSession(t, s, iamtest.AddIdentity(t, s.IAMStore, org, "i").UID)
		return dbtest.NewDuel(
			func() error {
				_, _, err := s.UseRefresh(t.Context(), []byte(n.ID), []byte(n.ID+"a"), time.Now().Add(time.Hour))
				return err
			},
			func() error { _, err := s.EndSession(t.Context(), n.ID); return err },
			overSession(t, s, n.ID),
		)
	},
	"refresh and delete identity": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i := iamtest.AddIdentity(t, s.IAMStore, org, "i")
		n := liveSession(t, s, i.UID)
		return dbtest.NewDuel(
			func() error {
				_, _, err := s.UseRefresh(t.Context(), []byte(n.ID), []byte(n.ID+"a"), time.Now().Add(time.Hour))
				return err
			},
			func() error { return s.DeleteIdentity(t.Context(), i.UID) },
			overSession(t, s, n.ID),
		)
	},
	"start session and delete identity": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i := iamtest.AddIdentity(t, s.IAMStore, org, "i")
		n := iamtest.NewSession(i.UID, string(org.NewChild()))
		n.ExpireTime = time.Now().Add(time.Hour)
		return dbtest.NewDuel(
			func() error { return s.StartSession(t.Context(), n, []byte(n.ID), n.ExpireTime) },
			func() error { return s.DeleteIdentity(t.Context(), i.UID) },
			func(a, b error) error {
				if errors.Is(a, fault.NotFound) {
					a = fault.New(fault.Unauthenticated, "")
				}
				return overSession(t, s, n.ID)(a, b)
			},
		)
	},
	"deny and delete identity": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i := iamtest.AddIdentity(t, s.IAMStore, org, "i")
		return dbtest.NewDuel(
			func() error {
				return s.RecordDenials(t.Context(), []resource.Denial{newDenial(i.UID, time.Now(), "r")})
			},
			func() error { return s.DeleteIdentity(t.Context(), i.UID) },
			func(a, b error) error {
				all, err := s.Denials(t.Context(), i.UID)
				if len(all) > 0 {
					err = fmt.Errorf("%d denials of nobody", len(all))
				}
				return errors.Join(a, b, err)
			},
		)
	},
	"rotate twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		first := newSigningKey("first", time.Now())
		testkit.Must(t, s.InsertFirstSigningKey(t.Context(), first))
		all, err := s.SigningKeys(t.Context())
		testkit.Must(t, err)
		newest := all[0]
		added := make(chan bool, 2)
		rotate := func() error {
			ok, err := s.AddSigningKey(t.Context(), newSigningKey(string(org.NewChild()), newest.CreateTime.Add(time.Second)),
				newest.ID)
			added <- ok
			return err
		}
		return dbtest.NewDuel(rotate, rotate, func(a, b error) error {
			if x, y := <-added, <-added; x == y {
				return fmt.Errorf("added: %v and %v, want one", x, y)
			}
			return errors.Join(a, b)
		})
	},
}

// liveSession starts a session that is valid now. Its first refresh token is
// equal to its id.
func liveSession(t *testing.T, s *iamtest.Store, identity resource.UID) resource.Session {
	t.Helper()
	n := iamtest.NewSession(identity, string(identity))
	n.CreateTime, n.ExpireTime = time.Now(), time.Now().Add(10*time.Hour)
	testkit.Must(t, s.StartSession(t.Context(), n, []byte(n.ID), n.ExpireTime))
	return n
}

// overSession returns a check that the second write succeeded, and that the
// session has ended for good.
func overSession(t *testing.T, s *iamtest.Store, id string) func(a, b error) error {
	return func(a, b error) error {
		if b != nil || a != nil && !errors.Is(a, fault.Unauthenticated) {
			return fmt.Errorf("errors = %v and %v", a, b)
		}
		if _, err := s.Session(t.Context(), id); !errors.Is(err, fault.NotFound) {
			return fmt.Errorf("the session goes on: %v", err)
		}
		if _, _, err := s.UseRefresh(t.Context(), []byte(id+"a"), []byte(id+"b"),
			time.Now().Add(time.Hour)); !errors.Is(err, fault.Unauthenticated) {
			return fmt.Errorf("its refresh token is good: %v", err)
		}
		return nil
	}
}
