package site

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

// Limits of wrong attempts. A network reaches its limit before the account does, so
// that the guesses of an attacker do not lock out the owner of an account. If many
// networks guess, the owner can use a passkey, a one-time link, or a browser that has
// signed in to the account before.
const (
	window     = 15 * time.Minute
	perAccount = 10  // greatest number of attempts per time window, account and network
	PerAddress = 100 // greatest number of attempts per time window and network, at all accounts
	perKnown   = 5   // additional attempts per time window for a browser that has signed in to the account

	freeTries    = 20          // number of attempts at one account, from all networks, that cause no delay
	firstDelay   = time.Second // delay after the first attempt beyond freeTries; it doubles with each attempt
	longestDelay = window
	quietTime    = time.Hour // after this time without an attempt the count starts again

	limitsTracked = 100_000 // greatest number of counters in memory
)

// limits count attempts by account and by network. The counters are in memory, so
// each replica counts separately. limits are safe for concurrent use.
type limits struct {
	now func() time.Time

	mu       sync.Mutex
	counters *lru.Cache[counterKey, *counter]
}

// A counterKey is the digest of a key, so that a long key takes no more memory than a
// short one.
type counterKey [sha256.Size]byte

func keyOf(text string) counterKey { return sha256.Sum256([]byte(text)) }

type counter struct {
	count int
	since time.Time // start of the window; with backoff, time of the last attempt
	next  time.Time // with backoff, time from which the next attempt is allowed
}

func newLimits(now func() time.Time) *limits {
	counters, _ := lru.New[counterKey, *counter](limitsTracked) // lru.New fails only for a size of 0
	return &limits{now: now, counters: counters}
}

// acquire counts an attempt at key and returns 0. If the window already has limit
// attempts, acquire counts nothing and returns the time to wait. Callers count an
// attempt before they make it, so that concurrent attempts cannot exceed the limit.
func (l *limits) acquire(key string, limit int) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asOf := l.now()
	t, ok := l.counters.Get(keyOf(key))
	if !ok || asOf.Sub(t.since) >= window {
		l.counters.Add(keyOf(key), &counter{count: 1, since: asOf})
		return 0
	}
	if t.count >= limit {
		return window - asOf.Sub(t.since)
	}
	t.count++
	return 0
}

// acquireWithBackoff counts an attempt at key and returns 0, or returns the time to wait
// before the next attempt. The first freeTries attempts have no delay. Each further
// attempt doubles the delay, up to longestDelay.
func (l *limits) acquireWithBackoff(key string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asOf := l.now()
	t, ok := l.counters.Get(keyOf(key))
	if !ok || asOf.Sub(t.since) >= quietTime {
		t = &counter{}
		l.counters.Add(keyOf(key), t)
	}
	if wait := t.next.Sub(asOf); wait > 0 {
		return wait
	}
	t.count++
	t.since = asOf
	if n := t.count - freeTries; n > 0 {
		t.next = asOf.Add(longestDelay)
		if n < 16 { // a larger shift would exceed longestDelay in any case
			t.next = asOf.Add(min(firstDelay<<(n-1), longestDelay))
		}
	}
	return 0
}

// release undoes acquire after an attempt that succeeded or was not made.
func (l *limits) release(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		t, ok := l.counters.Get(keyOf(key))
		if !ok {
			continue
		}
		t.next = time.Time{}
		if t.count--; t.count <= 0 {
			l.counters.Remove(keyOf(key)) // a counter of 0 needs no memory
		}
	}
}

// Acquire counts an attempt at key and returns 0. If the current window of 15 minutes
// already has limit attempts, it returns the time to wait.
func (s *Site) Acquire(key string, limit int) (wait time.Duration) {
	return s.limits.acquire(key, limit)
}

// Release undoes Acquire after an attempt that succeeded or was not made.
func (s *Site) Release(keys ...string) { s.limits.release(keys...) }

// An Attempt is the permission to check one password or code.
type Attempt struct {
	Release func()   // undoes the count after an attempt that succeeded or was not made
	Known   []string // if not nil, only the accounts with these ids may be tried
}

// AcquireAttempt acquires an attempt at target from the network of r, or returns the
// time to wait. target is the name of an account, whether or not the account exists.
// known are the ids of the accounts with that name to which the browser has signed in.
// If the general limits are reached, the browser may still try the known accounts,
// within a separate limit.
func (s *Site) AcquireAttempt(r *http.Request, target string, known []string) (t Attempt, wait time.Duration) {
	n := input.Network(r)
	address, pair, account := "address "+n, "pair "+n+" "+target, "account "+target
	if wait = s.limits.acquire(address, PerAddress); wait == 0 {
		if wait = s.limits.acquire(pair, perAccount); wait == 0 {
			if wait = s.limits.acquireWithBackoff(account); wait == 0 {
				return Attempt{Release: func() { s.limits.release(address, pair, account) }}, 0
			}
			s.limits.release(pair)
		}
		s.limits.release(address)
	}
	var keys []string
	for _, id := range known {
		if key := "known " + id; s.limits.acquire(key, perKnown) == 0 {
			keys, t.Known = append(keys, key), append(t.Known, id)
		}
	}
	if t.Known == nil {
		return t, wait
	}
	t.Release = func() { s.limits.release(keys...) }
	return t, 0
}

// TooMany returns the message for a person who must wait. It names other ways to sign
// in. It is the same whether or not the account exists.
func TooMany(wait time.Duration) string {
	text := "a moment"
	if wait > 5*time.Second {
		text = strings.TrimSuffix(ago(wait+time.Minute), " ago")
	}
	return "Too many tries. Wait " + text + " and try again, use a passkey or a browser that you have signed in " +
		"with before, or ask an administrator for a one-time link."
}
