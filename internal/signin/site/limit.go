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

// Limits of wrong attempts. They apply to the network that guesses before they
// apply to the account, so that the guesses of others do not lock its owner out.
// The owner of an account that many guess at can use a passkey, a one-time link,
// or a browser that has signed in to it before.
const (
	window     = 15 * time.Minute
	perAccount = 10  // per window, account and network
	PerAddress = 100 // per window and network, at all accounts
	perKnown   = 5   // per window, in addition, for a browser that has signed in to the account

	freeTries    = 20          // at one account from everywhere, before delays begin
	firstDelay   = time.Second // after the first attempt that is not free; doubles with each
	longestDelay = window
	quietTime    = time.Hour // after this time without an attempt the count starts again

	limitsTracked = 100_000
)

// limits count attempts by target and by origin. They are kept in memory, so
// each replica counts by itself.
type limits struct {
	now func() time.Time

	mu       sync.Mutex
	counters *lru.Cache[counterKey, *counter]
}

// A counterKey is the digest of what is counted, so that a long name takes no
// more memory than a short one.
type counterKey [sha256.Size]byte

func keyOf(text string) counterKey { return sha256.Sum256([]byte(text)) }

type counter struct {
	count int
	since time.Time // start of the window or, with backoff, the last attempt
	next  time.Time // with backoff, when the next attempt is allowed
}

func newLimits(now func() time.Time) *limits {
	counters, _ := lru.New[counterKey, *counter](limitsTracked) // fails only for a size of 0
	return &limits{now: now, counters: counters}
}

// acquire counts an attempt at key and returns 0, or returns how long to wait
// if there were most in this window. An attempt is counted before it is made,
// so that parallel ones cannot exceed the limit.
func (l *limits) acquire(key string, most int) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, ok := l.counters.Get(keyOf(key))
	if !ok || now.Sub(t.since) >= window {
		l.counters.Add(keyOf(key), &counter{count: 1, since: now})
		return 0
	}
	if t.count >= most {
		return window - now.Sub(t.since)
	}
	t.count++
	return 0
}

// acquireWithBackoff counts an attempt at key and returns 0, or returns how
// long to wait for the next. The first freeTries need not wait. After each
// further one the delay doubles, up to longestDelay.
func (l *limits) acquireWithBackoff(key string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, ok := l.counters.Get(keyOf(key))
	if !ok || now.Sub(t.since) >= quietTime {
		t = &counter{}
		l.counters.Add(keyOf(key), t)
	}
	if wait := t.next.Sub(now); wait > 0 {
		return wait
	}
	t.count++
	t.since = now
	if n := t.count - freeTries; n > 0 {
		t.next = now.Add(longestDelay)
		if n < 16 { // a larger shift would exceed longestDelay in any case
			t.next = now.Add(min(firstDelay<<(n-1), longestDelay))
		}
	}
	return 0
}

// release undoes acquire, for an attempt that succeeded or was not made.
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
			l.counters.Remove(keyOf(key)) // successful attempts need no memory
		}
	}
}

// Acquire counts an attempt at key and returns 0, or returns how long to wait if
// there were most in the last 15 minutes.
func (s *Site) Acquire(key string, most int) (wait time.Duration) { return s.limits.acquire(key, most) }

// Release undoes Acquire, for an attempt that succeeded or was not made.
func (s *Site) Release(keys ...string) { s.limits.release(keys...) }

// An Attempt is the permission to check one password or code.
type Attempt struct {
	Release func()   // for an attempt that succeeded or was not made
	Known   []string // if not nil, only these of the known accounts may be tried
}

// AcquireAttempt acquires an attempt at what, from the network of r. what is
// the name of an account or a name that an account could have: it makes no
// difference whether there is one. known are the ids of the accounts of that
// name that the browser has signed in to. It may try these when the general limits are
// reached, within a limit of its own.
func (s *Site) AcquireAttempt(r *http.Request, what string, known []string) (t Attempt, wait time.Duration) {
	n := input.Network(r)
	address, pair, account := "address "+n, "pair "+n+" "+what, "account "+what
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

// TooMany tells somebody who has to wait how else to sign in. The text is the
// same whether or not there is such an account.
func TooMany(wait time.Duration) string {
	text := "a moment"
	if wait > 5*time.Second {
		text = strings.TrimSuffix(ago(wait+time.Minute), " ago")
	}
	return "Too many tries. Wait " + text + " and try again, use a passkey or a browser that you have signed in " +
		"with before, or ask an administrator for a one-time link."
}
