package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func TestPasswordHash(t *testing.T) {
	h := newHasher(1)
	hash, err := h.hash(t.Context(), "correct horse battery")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatal(hash, err)
	}
	for word, want := range map[string]bool{"correct horse battery": true, "correct horse": false, "": false} {
		if ok, err := h.verify(t.Context(), hash, word); ok != want || err != nil {
			t.Errorf("%q: %v, %v", word, ok, err)
		}
	}
	for _, bad := range []string{"x", "$argon2i$v=19$m=1,t=1,p=1$AA$AA", "$argon2id$v=18$m=1,t=1,p=1$AA$AA", "$argon2id$v=19$m=1,t=1,p=1$!$AA"} {
		if ok, err := h.verify(t.Context(), bad, "x"); ok || err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// The password of an unknown address is hashed like any other, because
// skipping that would be faster.
func TestEnumerationByTime(t *testing.T) {
	h := newHasher(1)
	h.slots <- struct{}{} // the hasher is busy
	for name, hash := range map[string]string{"an account": h.dummy, "no account": ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := h.verify(ctx, hash, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s is told without hashing: %v", name, err)
		}
		cancel()
	}
	<-h.slots
	for _, word := range []string{"", "x", strings.Repeat("x", 10_000)} {
		if ok, err := h.verify(t.Context(), "", word); ok || err != nil {
			t.Errorf("%d letters are nobody's password: %v, %v", len(word), ok, err)
		}
	}
}

// The response waits for the hasher whether or not the address is known.
func TestEnumerationByTimeOfAddress(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	g := resource.Group{UID: resource.NewRoot(), Name: "acme"}
	a := resource.Account{UID: g.UID.NewChild(), Email: "known@example.test", Identity: resource.NewRoot()}
	i := resource.Identity{
		UID: a.Identity, Name: "known",
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: "s"}},
	}
	if err := db.CreateOrganization(t.Context(), g, a, i); err != nil {
		t.Fatal(err)
	}
	s := &Service{store: iamdb.New(db.DB), accounts: signindb.New(db.DB), people: admission.New(db.DB), hashes: newHasher(1), tried: newTried()}
	s.hashes.slots <- struct{}{} // the hasher is busy
	for _, email := range []string{a.Email, "unknown@example.test", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, _, err := s.accountsWithPassword(ctx, credentials{Email: email, Password: "x"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q is told without hashing: %v", email, err)
		}
		cancel()
	}
}

// A password is compared with the same number of hashes, however many accounts
// an address has.
func TestEnumerationByNumber(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	s := &Service{store: iamdb.New(db.DB), accounts: signindb.New(db.DB), people: admission.New(db.DB), hashes: newHasher(1), tried: newTried()}
	salt, key := make([]byte, saltSize), make([]byte, hashSize)
	s.hashes.dummy = "malformed" // to see whether it is used
	for n := range maxAccountsTried + 3 {
		_, _, err := s.accountsWithPassword(t.Context(), credentials{Email: "ann@example.test", Password: "x"})
		if full := n >= maxAccountsTried; full != errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%d accounts: %v", n, err)
		}
		g := resource.Group{UID: resource.NewRoot(), Name: fmt.Sprint("org", n)}
		a := resource.Account{
			UID: g.UID.NewChild(), Email: "ann@example.test", Identity: resource.NewRoot(),
			Password: encodeHash(salt, key),
		}
		i := resource.Identity{UID: a.Identity, Name: "ann", Relationship: resource.Relationship{
			ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: string(a.UID)},
		}}
		if err := db.CreateOrganization(t.Context(), g, a, i); err != nil {
			t.Fatal(err)
		}
	}
}

// Only a few passwords are hashed in parallel, some wait, and the rest is
// refused.
func TestHashingIsBounded(t *testing.T) {
	h := newHasher(2)
	var now, most, away atomic.Int64
	gate := make(chan struct{})
	var group sync.WaitGroup
	for range maxHashQueue + 100 {
		group.Go(func() {
			err := h.run(t.Context(), func() {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				<-gate
				now.Add(-1)
			})
			if errors.Is(err, fault.ResourceExhausted) {
				if away.Add(1) == 100 {
					close(gate)
				}
			}
		})
	}
	group.Wait()
	if most.Load() > 2 || away.Load() != 100 {
		t.Errorf("%d at once, %d sent away", most.Load(), away.Load())
	}
}

// from returns a request from an address.
func from(address string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/signin/password", nil)
	r.RemoteAddr = net.JoinHostPort(address, "1234")
	return r
}

// A limited is a service that only counts attempts, and its clock.
type limited struct {
	*Service
	at time.Time
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	l := &limited{at: time.Now()}
	l.Service = &Service{limits: newLimits(func() time.Time { return l.at })}
	return l
}

// Somebody who tries many accounts from one network is stopped, whatever
// address of it they use; others are not.
func TestLimitOfAddresses(t *testing.T) {
	s := newLimited(t)
	for i := range perAddress {
		if _, wait := s.acquireAttempt(from(fmt.Sprintf("2001:db8::%x", i)), fmt.Sprint("account ", i), nil); wait > 0 {
			t.Fatalf("try %d has to wait", i)
		}
	}
	if _, wait := s.acquireAttempt(from("2001:db8::ffff:1"), "another", nil); wait <= 0 {
		t.Error("one more of this network need not wait")
	}
	got, wait := s.acquireAttempt(from("2001:db8:0:1::1"), "another", nil)
	if wait > 0 {
		t.Fatal("another network has to wait")
	}
	for range 2 * (perAddress + freeTries) { // tries that were right do not count
		got.release()
		if got, wait = s.acquireAttempt(from("192.0.2.1"), "another", nil); wait > 0 {
			t.Fatal("who is right has to wait")
		}
	}
}

// Delays of attempts at one account grow, and no network waits longer than a
// window. A successful attempt does not count.
func TestDelayGrows(t *testing.T) {
	s := newLimited(t)
	n := 0
	guess := func() time.Duration {
		n++
		_, wait := s.acquireAttempt(from(fmt.Sprintf("192.0.%d.%d", n/250, n%250)), "ann", nil)
		return wait
	}
	for i := range freeTries {
		if wait := guess(); wait > 0 {
			t.Fatalf("guess %d has to wait %v", i, wait)
		}
	}
	for want := firstDelay; want < longestDelay; want *= 2 {
		if wait := guess(); wait > 0 {
			t.Fatalf("after its delay a guess has to wait %v", wait)
		}
		if wait := guess(); wait != want {
			t.Fatalf("the next has to wait %v, want %v", wait, want)
		}
		s.at = s.at.Add(want)
	}
	right, wait := s.acquireAttempt(from("198.51.100.1"), "ann", nil)
	if wait > 0 {
		t.Fatalf("the owner has to wait %v", wait)
	}
	right.release()
	guess()
	if wait := guess(); wait != longestDelay {
		t.Errorf("the longest delay is %v, want %v", wait, longestDelay)
	}
	s.at = s.at.Add(quietTime)
	for range freeTries {
		if wait := guess(); wait > 0 {
			t.Fatalf("after a quiet time a guess has to wait %v", wait)
		}
	}
}

// A browser that has signed in to an account has a few attempts of its own,
// for that account only.
func TestLimitOfKnownBrowsers(t *testing.T) {
	s := newLimited(t)
	known := []knownAccount{{Account: "a/b", ID: "x"}}
	for range perAccount {
		s.acquireAttempt(from("192.0.2.1"), "ann", nil)
	}
	if _, wait := s.acquireAttempt(from("192.0.2.1"), "ann", nil); wait == 0 {
		t.Fatal("a stranger need not wait")
	}
	for i := range perKnown {
		got, wait := s.acquireAttempt(from("192.0.2.1"), "ann", known)
		if wait > 0 || len(got.known) != 1 || got.known[0].Account != "a/b" {
			t.Fatalf("try %d of a known browser: %+v, %v", i, got, wait)
		}
	}
	if _, wait := s.acquireAttempt(from("192.0.2.1"), "ann", known); wait == 0 {
		t.Error("a known browser may try without end")
	}
	if perKnown > perAccount {
		t.Error("who has stolen the cookie of a known browser has more tries than a stranger")
	}
}

// A counter takes the same memory however long its name is, and none after a
// successful attempt.
func TestLimitsForget(t *testing.T) {
	s := newLimited(t)
	got, _ := s.acquireAttempt(from("192.0.2.1"), strings.Repeat("x", 1<<20), nil)
	if n := s.limits.counters.Len(); n != 3 {
		t.Errorf("%d are kept of one try", n)
	}
	if size := unsafe.Sizeof(counterKey{}); size > 64 {
		t.Errorf("a key has %d bytes", size)
	}
	got.release()
	if n := s.limits.counters.Len(); n != 0 {
		t.Errorf("%d are kept of a try that was right", n)
	}
}

// One network cannot fill the queue of the hasher.
func TestHashingIsFair(t *testing.T) {
	h := newHasher(1)
	h.slots <- struct{}{} // the hasher is busy
	at := func(address string) context.Context {
		return resource.WithActor(t.Context(), resource.Actor{Remote: address})
	}
	var group sync.WaitGroup
	for i := range maxHashQueuePerNetwork {
		group.Go(func() {
			if err := h.run(at(fmt.Sprintf("2001:db8::%x", i)), func() {}); err != nil {
				t.Errorf("of one network: %v", err)
			}
		})
	}
	for { // until all of them wait
		h.mu.Lock()
		n := h.waiting
		h.mu.Unlock()
		if n == maxHashQueuePerNetwork {
			break
		}
		runtime.Gosched()
	}
	if err := h.run(at("2001:db8::ffff"), func() {}); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("one more of the network: %v", err)
	}
	group.Go(func() {
		if err := h.run(at("192.0.2.1"), func() {}); err != nil {
			t.Errorf("of another network: %v", err)
		}
	})
	<-h.slots
	group.Wait()
	if len(h.from) != 0 || h.waiting != 0 {
		t.Errorf("%d are left in the queue, of %v", h.waiting, h.from)
	}
}

func TestChosenPasswords(t *testing.T) {
	for word, want := range map[string]bool{
		"correct horse battery": true, "correct horse": false, "eleven char": false, "aaaaaaaaaaaaaaaa": false, "someone@example.test": false, "ünïcödé wörds": true,
		strings.Repeat("xy", 300): false, "": false,
	} {
		if err := checkPassword(word, "someone@example.test"); (err == nil) != want {
			t.Errorf("%q: %v", word, err)
		}
	}
}
