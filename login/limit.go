package login

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// How many wrong tries there may be. Whoever guesses is slowed down where they
// guess from, before the account is: other people's guesses shall not keep its
// owner out. The owner of an account that many guess at comes in with a passkey,
// a one-time link, or a browser that has signed in to it before.
const (
	window     = 15 * time.Minute
	perAccount = 10  // in a window, at one account, from one network
	perAddress = 100 // in a window, at all accounts, from one network
	perKnown   = 5   // in a window, by a browser that the account knows, beyond all others: fewer than any stranger has
	maxDevices = 60  // devices that one address may have ask

	freeTries    = 20          // at one account from everywhere, before there are delays
	firstDelay   = time.Second // after the first try that is not free; it doubles with each
	longestDelay = window
	quietTime    = time.Hour // without a try, after which an account's tries are forgotten

	limitsTracked = 100_000
)

// limits count tries by what they are aimed at and by where they come from. They
// are kept in memory: a replica counts by itself.
type limits struct {
	now func() time.Time

	mu       sync.Mutex
	counters *lru.Cache[counterKey, *counter]
}

// A counterKey is the digest of what is counted, so that a long name takes no more
// memory than a short one.
type counterKey [sha256.Size]byte

func keyOf(text string) counterKey { return sha256.Sum256([]byte(text)) }

type counter struct {
	count int
	since time.Time // the beginning of the window, or for slow the last try
	next  time.Time // before which slow permits no other try
}

func newLimits(now func() time.Time) (*limits, error) {
	tried, err := lru.New[counterKey, *counter](limitsTracked)
	return &limits{now: now, counters: tried}, err
}

// acquire uses up one of most tries at key in a window and returns 0, or returns how
// long to wait for one. Tries are taken before they are made, so that many at
// once are not more.
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

// acquireWithBackoff uses up a try at key and returns 0, or returns how long to wait for one.
// The first freeTries follow each other at once. After each further one the next
// has to wait twice as long, up to longestDelay.
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
		if n < 16 { // beyond, a shift would be longer in any case
			t.next = now.Add(min(firstDelay<<(n-1), longestDelay))
		}
	}
	return 0
}

// release undoes takes, for a try that was right or was not made.
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
			l.counters.Remove(keyOf(key)) // what was right leaves no trace, and needs no memory
		}
	}
}

// network is what limits are counted by: of IPv6 whoever has an address has
// 2^64 of them.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return address
	}
	return p.String()
}

// A attempt is the permission to check one password or code.
type attempt struct {
	release func()         // for a try that was right or was not made
	known   []knownAccount // if not nil, only these may be tried: strangers would have to wait
}

// acquireAttempt takes a try at what from where r comes from. what is the name of an
// account, or a name that an account could have: whether there is one makes no
// difference. known are the accounts behind that name that know the browser. It
// may try these after others have used up all tries, within a limit of its own.
func (s *Service) acquireAttempt(r *http.Request, what string, known []knownAccount) (t attempt, wait time.Duration) {
	n := network(remote(r))
	address, pair, account := "address "+n, "pair "+n+" "+what, "account "+what
	if wait = s.limits.acquire(address, perAddress); wait == 0 {
		if wait = s.limits.acquire(pair, perAccount); wait == 0 {
			if wait = s.limits.acquireWithBackoff(account); wait == 0 {
				return attempt{release: func() { s.limits.release(address, pair, account) }}, 0
			}
			s.limits.release(pair)
		}
		s.limits.release(address)
	}
	var keys []string
	for _, k := range known {
		if key := "known " + k.ID; s.limits.acquire(key, perKnown) == 0 {
			keys, t.known = append(keys, key), append(t.known, k)
		}
	}
	if t.known == nil {
		return t, wait
	}
	t.release = func() { s.limits.release(keys...) }
	return t, 0
}
