package login

import (
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// How many wrong tries there may be in a window. A person who has forgotten
// their password does not get as far; who guesses gets nowhere.
const (
	window        = 15 * time.Minute
	perAccount    = 10
	perAddress    = 100
	devicesPer    = 60 // devices that one address may have ask
	limitsTracked = 100_000
)

// limits count tries by what they are aimed at and by where they come from. They
// are kept in memory: a replica counts by itself.
type limits struct {
	now func() time.Time

	mu    sync.Mutex
	tried *lru.Cache[string, *tally]
}

type tally struct {
	count int
	since time.Time
}

func newLimits(now func() time.Time) (*limits, error) {
	tried, err := lru.New[string, *tally](limitsTracked)
	return &limits{now: now, tried: tried}, err
}

// take uses up a try at key, or tells how long to wait for one. Tries are taken
// before they are made, so that many at once are not more.
func (l *limits) take(key string, most int) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, ok := l.tried.Get(key)
	if !ok || now.Sub(t.since) >= window {
		l.tried.Add(key, &tally{1, now})
		return 0
	}
	if t.count >= most {
		return window - now.Sub(t.since)
	}
	t.count++
	return 0
}

// giveBack undoes a take, for a try that was right.
func (l *limits) giveBack(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if t, ok := l.tried.Get(key); ok && t.count > 0 {
			t.count--
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

// try takes a try at an account from an address, and returns how to give it back.
func (s *Service) try(account, address string) (giveBack func(), wait time.Duration) {
	a, n := "account "+account, "address "+network(address)
	if wait := s.limits.take(n, perAddress); wait > 0 {
		return nil, wait
	}
	if wait := s.limits.take(a, perAccount); wait > 0 {
		return nil, wait
	}
	return func() { s.limits.giveBack(a, n) }, 0
}
