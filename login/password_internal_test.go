package login

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

func TestPasswordHash(t *testing.T) {
	h := newHasher(1)
	hash, err := h.hash(t.Context(), "correct horse battery")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatal(hash, err)
	}
	for word, want := range map[string]bool{"correct horse battery": true, "correct horse": false, "": false} {
		if ok, err := h.right(t.Context(), hash, word); ok != want || err != nil {
			t.Errorf("%q: %v, %v", word, ok, err)
		}
	}
	for _, bad := range []string{"x", "$argon2i$v=19$m=1,t=1,p=1$AA$AA", "$argon2id$v=18$m=1,t=1,p=1$AA$AA", "$argon2id$v=19$m=1,t=1,p=1$!$AA"} {
		if ok, err := h.right(t.Context(), bad, "x"); ok || err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// Nobody's password is hashed like anybody's: an answer that needs no hasher
// would come sooner.
func TestEnumerationByTime(t *testing.T) {
	h := newHasher(1)
	h.slots <- struct{}{} // the hasher is busy
	for name, hash := range map[string]string{"an account": h.nobody, "no account": ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := h.right(ctx, hash, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s is told without hashing: %v", name, err)
		}
		cancel()
	}
	<-h.slots
	for _, word := range []string{"", "x", strings.Repeat("x", 10_000)} {
		if ok, err := h.right(t.Context(), "", word); ok || err != nil {
			t.Errorf("%d letters are nobody's password: %v, %v", len(word), ok, err)
		}
	}
}

// The same holds for who comes with an address: it is looked for first, and the
// answer waits for the hasher whether it is known or not.
func TestEnumerationByTimeOfAddress(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	g := resource.Group{UID: resource.NewRoot(), Name: "acme"}
	a := resource.Account{UID: g.UID.NewChild(), Email: "known@example.test", Identity: resource.NewRoot()}
	i := resource.Identity{UID: a.Identity, Name: "known", Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: "s"}}}
	if err := db.Found(t.Context(), g, a, i); err != nil {
		t.Fatal(err)
	}
	s := &Service{store: db, hashes: newHasher(1)}
	s.hashes.slots <- struct{}{} // the hasher is busy
	for _, email := range []string{a.Email, "unknown@example.test", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := s.checkedPassword(ctx, email, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q is told without hashing: %v", email, err)
		}
		cancel()
	}
}

// However many come, few hash at once, some wait, and the rest is sent away.
func TestHashingIsBounded(t *testing.T) {
	h := newHasher(2)
	var now, most, away atomic.Int64
	gate := make(chan struct{})
	var group sync.WaitGroup
	for range hashesWaiting + 100 {
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

// Whoever tries many accounts from one network is stopped, whatever address of it
// they use; others are not.
func TestLimitOfAddresses(t *testing.T) {
	limits, err := newLimits(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{limits: limits}
	for i := range perAddress {
		if _, wait := s.try(fmt.Sprint("account ", i), fmt.Sprintf("2001:db8::%x", i)); wait > 0 {
			t.Fatalf("try %d has to wait", i)
		}
	}
	if _, wait := s.try("another", "2001:db8::ffff:1"); wait <= 0 {
		t.Error("one more of this network need not wait")
	}
	giveBack, wait := s.try("another", "2001:db8:0:1::1")
	if wait > 0 {
		t.Fatal("another network has to wait")
	}
	for range 2 * perAccount { // tries that were right do not count
		giveBack()
		if giveBack, wait = s.try("another", "192.0.2.1"); wait > 0 {
			t.Fatal("who is right has to wait")
		}
	}
}

func TestChosenPasswords(t *testing.T) {
	for word, want := range map[string]bool{
		"correct horse": true, "eleven char": false, "aaaaaaaaaaaaaaaa": false, "someone@example.test": false, "ünïcödé wörds": true,
		strings.Repeat("xy", 300): false, "": false,
	} {
		if err := checkPassword(word, "someone@example.test"); (err == nil) != want {
			t.Errorf("%q: %v", word, err)
		}
	}
}
