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
	devicesPer = 60  // devices that one address may have ask

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

	mu    sync.Mutex
	tried *lru.Cache[tallyKey, *tally]
}

// A tallyKey is the digest of what is counted, so that a long name takes no more
// memory than a short one.
type tallyKey [sha256.Size]byte

func keyOf(text string) tallyKey { return sha256.Sum256([]byte(text)) }

type tally struct {
	count int
	since time.Time // the beginning of the window, or for slow the last try
	next  time.Time // before which slow permits no other try
}

func newLimits(now func() time.Time) (*limits, error) {
	tried, err := lru.New[tallyKey, *tally](limitsTracked)
	return &limits{now: now, tried: tried}, err
}

// take uses up one of most tries at key in a window and returns 0, or returns how
// long to wait for one. Tries are taken before they are made, so that many at
// once are not more.
func (l *limits) take(key string, most int) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, ok := l.tried.Get(keyOf(key))
	if !ok || now.Sub(t.since) >= window {
		l.tried.Add(keyOf(key), &tally{count: 1, since: now})
		return 0
	}
	if t.count >= most {
		return window - now.Sub(t.since)
	}
	t.count++
	return 0
}

// slow uses up a try at key and returns 0, or returns how long to wait for one.
// The first freeTries follow each other at once. After each further one the next
// has to wait twice as long, up to longestDelay.
func (l *limits) slow(key string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, ok := l.tried.Get(keyOf(key))
	if !ok || now.Sub(t.since) >= quietTime {
		t = &tally{}
		l.tried.Add(keyOf(key), t)
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

// giveBack undoes takes, for a try that was right or was not made.
func (l *limits) giveBack(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		t, ok := l.tried.Get(keyOf(key))
		if !ok {
			continue
		}
		t.next = time.Time{}
		if t.count--; t.count <= 0 {
			l.tried.Remove(keyOf(key)) // what was right leaves no trace, and needs no memory
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

// A try is the permission to check one password or code.
type try struct {
	giveBack func()         // for a try that was right or was not made
	known    []knownAccount // if not nil, only these may be tried: strangers would have to wait
}

// try takes a try at what from where r comes from. what is the name of an
// account, or a name that an account could have: whether there is one makes no
// difference. known are the accounts behind that name that know the browser. It
// may try these after others have used up all tries, within a limit of its own.
func (s *Service) try(r *http.Request, what string, known []knownAccount) (t try, wait time.Duration) {
	n := network(remote(r))
	address, pair, account := "address "+n, "pair "+n+" "+what, "account "+what
	if wait = s.limits.take(address, perAddress); wait == 0 {
		if wait = s.limits.take(pair, perAccount); wait == 0 {
			if wait = s.limits.slow(account); wait == 0 {
				return try{giveBack: func() { s.limits.giveBack(address, pair, account) }}, 0
			}
			s.limits.giveBack(pair)
		}
		s.limits.giveBack(address)
	}
	var keys []string
	for _, k := range known {
		if key := "known " + k.ID; s.limits.take(key, perKnown) == 0 {
			keys, t.known = append(keys, key), append(t.known, k)
		}
	}
	if t.known == nil {
		return t, wait
	}
	t.giveBack = func() { s.limits.giveBack(keys...) }
	return t, 0
}
