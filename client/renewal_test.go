package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/client"
)

const address = "https://holdfast.example.com"

// A tap is a Credential that issues numbered tokens with a given lifetime. Tests can make
// it wait or fail. It needs no network, so tests can use a fake clock.
type tap struct {
	life time.Duration
	hold chan struct{} // Next waits until it can receive from hold; if nil, Next does not wait
	fail error

	mu    sync.Mutex
	asked int
	given int
}

func (s *tap) Next(ctx context.Context, _ *client.Issuer, before client.Tokens) (client.Tokens, error) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return client.Tokens{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given++; s.fail != nil {
		return client.Tokens{}, s.fail
	}
	return client.Tokens{Access: access(address, fmt.Sprint(s.given), s.life), Refresh: before.Refresh + "."}, nil
}

func dial(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Address = address
	c, err := client.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRenewalBeforeExpiry: a token is renewed in the last minute of its lifetime, not
// earlier.
func TestRenewalBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &tap{life: time.Hour}
		c := dial(t, client.Config{Credential: source})
		defer c.Close()
		seen := map[string]bool{}
		for _, step := range []struct {
			passes time.Duration
			given  int
		}{{0, 1}, {0, 1}, {58 * time.Minute, 1}, {2*time.Minute - time.Second, 2}, {0, 2}, {24 * time.Hour, 3}} {
			time.Sleep(step.passes)
			token, err := c.Token(t.Context())
			if err != nil || source.given != step.given {
				t.Fatalf("after %s %d tokens were asked for, %v; want %d", step.passes, source.given, err, step.given)
			}
			if !client.Serves(token, address, time.Now()) {
				t.Errorf("after %s the token is not valid", step.passes)
			}
			seen[token] = true
		}
		if len(seen) != 3 {
			t.Errorf("there were %d tokens, want 3", len(seen))
		}
	})
}

// TestRenewalIsShared: goroutines whose token is about to expire wait for one renewal and
// share its result, even if it fails.
func TestRenewalIsShared(t *testing.T) {
	for name, fail := range map[string]error{"a token": nil, "a failure": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &tap{life: time.Hour, hold: make(chan struct{}), fail: fail}
				c := dial(t, client.Config{Credential: source})
				defer c.Close()
				const callers = 20
				var tokens [callers]string
				var errs [callers]error
				var all sync.WaitGroup
				for n := range callers {
					all.Go(func() { tokens[n], errs[n] = c.Token(t.Context()) })
				}
				synctest.Wait() // waits until all callers wait
				close(source.hold)
				all.Wait()
				if source.given != 1 {
					t.Errorf("there were %d renewals, want 1", source.given)
				}
				for n := range callers {
					if tokens[n] != tokens[0] || !errors.Is(errs[n], fail) {
						t.Errorf("caller %d has %q, %v", n, tokens[n], errs[n])
					}
				}
			})
		})
	}
}

// TestRenewalAfterFailure: after a failed renewal, the next call tries again.
func TestRenewalAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &tap{life: time.Hour, fail: errors.New("no")}
		c := dial(t, client.Config{Credential: source})
		defer c.Close()
		if _, err := c.Token(t.Context()); !errors.Is(err, source.fail) {
			t.Fatalf("error = %v", err)
		}
		source.fail = nil
		if _, err := c.Token(t.Context()); err != nil {
			t.Errorf("after a failure: %v", err)
		}
	})
}

// TestGivingUp: a caller whose context ends returns immediately. The renewal that it
// started completes, because the refresh token was used.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &tap{life: time.Hour, hold: make(chan struct{})}
		c := dial(t, client.Config{Credential: source})
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := c.Token(ctx)
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
		close(source.hold)
		if _, err := c.Token(t.Context()); err != nil || source.asked != 1 {
			t.Errorf("afterwards there were %d renewals, %v; want 1", source.asked, err)
		}
	})
}

// A queue is a Vault that several clients share.
type queue struct {
	turn chan struct{}

	mu   sync.Mutex
	kept client.Tokens
}

func (q *queue) Read(context.Context) (client.Tokens, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.kept, nil
}

func (q *queue) Change(ctx context.Context, change func(client.Tokens) (client.Tokens, error)) error {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	kept, err := q.Read(ctx)
	if err != nil {
		return err
	}
	next, err := change(kept)
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.kept = next
	}
	return err
}

// TestGivingUpAlone: if one caller gives up waiting for the vault, no other caller fails.
func TestGivingUpAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, vault := &tap{life: time.Hour}, &queue{turn: make(chan struct{}, 1)}
		c := dial(t, client.Config{Credential: source, Vault: vault})
		defer c.Close()
		vault.turn <- struct{}{} // simulates another program that holds the lock
		ctx, cancel := context.WithCancel(t.Context())
		var impatient, patient error
		var all sync.WaitGroup
		all.Go(func() { _, impatient = c.Token(ctx) })
		synctest.Wait()
		all.Go(func() { _, patient = c.Token(t.Context()) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		<-vault.turn
		all.Wait()
		if !errors.Is(impatient, context.Canceled) || patient != nil || source.given != 1 {
			t.Errorf("%v, %v, %d renewals; want the first to give up and the second to have a token", impatient, patient,
				source.given)
		}
	})
}

// TestSharedVault: two programs that share a vault use each refresh token only once.
func TestSharedVault(t *testing.T) {
	f := startFar(t)
	f.life = 2 * time.Minute
	vault := &queue{
		turn: make(chan struct{}, 1), kept: client.Tokens{Access: access(f.address, "old", 0), Refresh: "refresh-0"},
	}
	var all sync.WaitGroup
	for range 4 {
		c := f.dial(t, client.Config{Credential: client.RefreshToken(""), Vault: vault})
		for range 8 {
			all.Go(func() {
				if err := get(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if f.refreshes != 1 || vault.kept.Refresh != "refresh-1" {
		t.Errorf("%d refresh tokens were used, and %q is kept", f.refreshes, vault.kept.Refresh)
	}
}

// TestCloseWhileCalling: if a client is closed during calls, these calls fail, without a
// panic or a race.
func TestCloseWhileCalling(t *testing.T) {
	f := startFar(t)
	f.life = 0 // every call needs a new token
	c := f.dial(t, client.Config{Credential: client.RefreshToken("refresh-0")})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for get(t.Context(), c) == nil {
			}
		})
	}
	if err := get(t.Context(), c); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := get(t.Context(), c); err == nil {
		t.Error("a closed client makes calls")
	}
}
