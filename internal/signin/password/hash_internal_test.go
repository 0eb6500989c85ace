package password

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func TestPasswordHash(t *testing.T) {
	h := NewHasher(1)
	hash, err := h.Hash(t.Context(), "correct horse battery")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatal(hash, err)
	}
	for word, want := range map[string]bool{"correct horse battery": true, "correct horse": false, "": false} {
		if ok, err := h.Verify(t.Context(), hash, word); ok != want || err != nil {
			t.Errorf("%q: %v, %v", word, ok, err)
		}
	}
	for _, bad := range []string{"x", "$argon2i$v=19$m=1,t=1,p=1$AA$AA", "$argon2id$v=18$m=1,t=1,p=1$AA$AA",
		"$argon2id$v=19$m=1,t=1,p=1$!$AA"} {
		if ok, err := h.Verify(t.Context(), bad, "x"); ok || err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// TestEnumerationByTime: the password is hashed even if the e-mail address is unknown, because otherwise the response
// would be faster.
func TestEnumerationByTime(t *testing.T) {
	h := NewHasher(1)
	h.slots <- struct{}{} // the hasher is busy
	for name, hash := range map[string]string{"an account": h.Dummy, "no account": ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := h.Verify(ctx, hash, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s is told without hashing: %v", name, err)
		}
		cancel()
	}
	<-h.slots
	for _, word := range []string{"", "x", strings.Repeat("x", 10_000)} {
		if ok, err := h.Verify(t.Context(), "", word); ok || err != nil {
			t.Errorf("%d letters are nobody's password: %v, %v", len(word), ok, err)
		}
	}
}

// TestHashingIsBounded: only a few passwords are hashed at the same time. Some wait, and the others are refused.
func TestHashingIsBounded(t *testing.T) {
	h := NewHasher(2)
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

// TestHashingIsFair: one network cannot fill the queue of the hasher.
func TestHashingIsFair(t *testing.T) {
	h := NewHasher(1)
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
	for { // loop until all hashes wait
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
		"correct horse battery": true, "correct horse": false, "eleven char": false, "aaaaaaaaaaaaaaaa": false,
		"someone@example.test": false, "ünïcödé wörds": true,
		strings.Repeat("xy", 300): false, "": false,
	} {
		if err := Check(word, "someone@example.test"); (err == nil) != want {
			t.Errorf("%q: %v", word, err)
		}
	}
}
