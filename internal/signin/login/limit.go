package login

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits of wrong attempts. They apply to the network that guesses before they
// apply to the account, so that the guesses of others do not lock its owner out.
// The owner of an account that many guess at can use a passkey, a one-time link,
// or a browser that has signed in to it before.
const (
	window     = 15 * time.Minute
	perAccount = 10  // per window, account and network
	perAddress = 100 // per window and network, at all accounts
	perKnown   = 5   // per window, in addition, for a browser that has signed in to the account
	maxDevices = 60  // device authorizations per window and network

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

// An attempt is the permission to check one password or code.
type attempt struct {
	release func()         // for an attempt that succeeded or was not made
	known   []knownAccount // if not nil, only these accounts may be tried
}

// acquireAttempt acquires an attempt at what, from the network of r. what is
// the name of an account or a name that an account could have: it makes no
// difference whether there is one. known are the accounts of that name that
// the browser has signed in to. It may try these when the general limits are
// reached, within a limit of its own.
func (s *Service) acquireAttempt(r *http.Request, what string, known []knownAccount) (t attempt, wait time.Duration) {
	n := network(r)
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

const (
	knownCookie      = "hf_known"
	sealedKnown      = "known browser"
	knownLife        = 180 * 24 * time.Hour
	maxKnownAccounts = 4 // accounts that a browser remembers; more people seldom share one
)

// A knownAccount is an account that a browser has signed in to, stored in a
// sealed cookie. It proves nothing else. It gives the browser some attempts of
// its own at the account, so that the guesses of others do not lock its owner
// out.
type knownAccount struct {
	Account resource.UID `json:"account"`
	ID      string       `json:"id"`    // attempts are counted by this id
	Expires int64        `json:"until"` // in seconds

	account resource.Account // set by knownFor
}

// knownAccounts returns the accounts that the browser of a request has signed
// in to.
func (s *Service) knownAccounts(r *http.Request) (all []knownAccount) {
	b, ok := s.openCookie(r, knownCookie, sealedKnown)
	if !ok || json.Unmarshal(b, &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(k knownAccount) bool { return s.cfg.Now().Unix() >= k.Expires })
}

// knownTo returns the browser's entry for an account, if there is one.
func (s *Service) knownTo(r *http.Request, account resource.UID) []knownAccount {
	return slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account != account })
}

// rememberBrowser adds an account that the browser has signed in to. Entries
// for other accounts stay as they are, so that signing in to one account gives
// no new attempts at another.
func (s *Service) rememberBrowser(w http.ResponseWriter, r *http.Request, account resource.UID) {
	others := slices.DeleteFunc(s.knownAccounts(r), func(k knownAccount) bool { return k.Account == account })
	newest := knownAccount{Account: account, ID: newID(), Expires: s.cfg.Now().Add(knownLife).Unix()}
	all := append([]knownAccount{newest}, others...)
	b, err := json.Marshal(all[:min(len(all), maxKnownAccounts)])
	if err != nil {
		return // impossible, and the cookie is optional
	}
	http.SetCookie(w, s.sealedCookie(knownCookie, sealedKnown, b, knownLife))
}
