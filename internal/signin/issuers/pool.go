package issuers

import (
	"context"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Reason is the reason why an issuer is trusted. Fetches and cached keys are
// counted per reason, so that one reason cannot use up the quota of another.
type Reason int

// The reasons why an issuer is trusted, beginning with the reason that strangers can influence least.
const (
	Named   Reason = iota // an identity of an organization names the issuer
	Person                // people sign in with the issuer
	Matched               // the issuer matches a pattern, so the sender of a token chooses it
	reasons
)

// A QuotaKey names the quota that a fetch of an issuer's keys counts against.
type QuotaKey struct {
	Tenant string // an organization; for people, the domain of their issuer
	Reason Reason
}

// limits bound the fetches and cached keys of one reason, so that no tenant can use up the quota of other tenants,
// neither with issuers that do not respond nor with many issuers that do.
type limits struct {
	fetches     int // greatest number of concurrent fetches
	fetchesEach int // greatest number of concurrent fetches per tenant
	waitingEach int // greatest number of queued fetches per tenant; further ones are refused
	keys        int // greatest number of cached keys
	keysEach    int // greatest number of cached keys per tenant
	triedEach   int // greatest number of cached issuers without keys, per tenant
	tenants     int // greatest number of tenants with a pool
}

// poolLimits are the limits per reason. All fetches of a tenant together are fewer than the connections that package
// outbound opens to one host. Therefore no tenant can use up the connections to a host that serves several tenants. A
// hundred keys take at most 130 KB.
var poolLimits = [reasons]limits{
	Named: {
		fetches: 128, fetchesEach: 4, waitingEach: 128, keys: 40_000, keysEach: 4000, triedEach: 512, tenants: 10_000,
	},
	Person: {
		fetches: 32, fetchesEach: 2, waitingEach: 32, keys: 10_000, keysEach: 1000, triedEach: 128, tenants: 10_000,
	},
	Matched: {
		fetches: 32, fetchesEach: 2, waitingEach: 16, keys: 10_000, keysEach: 500, triedEach: 128, tenants: 10_000,
	},
}

// A poolSet holds the pools of one reason. Issuers.mu guards it and its pools.
type poolSet struct {
	limits
	tenants *simplelru.LRU[string, *pool]
	running int     // number of running fetches
	keys    int     // number of cached keys in all pools
	queue   []*pool // pools with queued fetches; the first is served next
}

// A pool holds the fetches and cached issuers of one tenant for one reason.
type pool struct {
	set         *poolSet
	withKeys    *simplelru.LRU[string, *issuer] // issuers whose keys are cached
	withoutKeys *simplelru.LRU[string, *issuer] // other issuers; they never evict an issuer with keys
	keys        int                             // number of keys in withKeys
	running     int                             // number of running fetches
	queue       []*issuer                       // issuers with a queued fetch
}

// unlimited is the size of LRU lists whose length this package bounds itself.
const unlimited = 1 << 30

// newLRU returns an empty list. NewLRU fails only for a size of 0.
func newLRU[T any]() *simplelru.LRU[string, T] {
	list, _ := simplelru.NewLRU[string, T](unlimited, nil)
	return list
}

// poolFor returns the pool for the quota q. The caller holds t.mu.
func (t *Issuers) poolFor(q QuotaKey) *pool {
	set := t.pools[q.Reason]
	if p, ok := set.tenants.Get(q.Tenant); ok {
		return p
	}
	p := &pool{set: set, withKeys: newLRU[*issuer](), withoutKeys: newLRU[*issuer]()}
	set.tenants.Add(q.Tenant, p)
	if set.tenants.Len() > set.limits.tenants {
		_, oldest, _ := set.tenants.RemoveOldest()
		for t.evictOldest(oldest, oldest.withKeys) || t.evictOldest(oldest, oldest.withoutKeys) {
		}
	}
	return p
}

// lookup returns the issuer with that name from p or another pool, or a new
// issuer. The caller holds t.mu.
func (t *Issuers) lookup(p *pool, name string) *issuer {
	if i, ok := p.withKeys.Get(name); ok {
		return i
	}
	if i, ok := p.withoutKeys.Get(name); ok {
		return i
	}
	if i, ok := t.issuers[name]; ok {
		return i
	}
	return &issuer{name: name, pools: map[*pool]struct{}{}}
}

// remember adds an issuer to p. The caller holds t.mu.
func (t *Issuers) remember(p *pool, i *issuer) {
	if _, ok := i.pools[p]; ok {
		return
	}
	t.issuers[i.name] = i
	i.pools[p] = struct{}{}
	p.withoutKeys.Add(i.name, i)
	t.rebalance(p, i)
}

// rebalance moves an issuer of p to withKeys if its keys are cached, and evicts
// the least recently used issuers to stay within the limits. The caller holds
// t.mu.
func (t *Issuers) rebalance(p *pool, i *issuer) {
	if !i.fetchedAt.IsZero() && p.withoutKeys.Remove(i.name) {
		p.withKeys.Add(i.name, i)
		p.addKeys(i.size())
	}
	for p.withoutKeys.Len() > p.set.triedEach && t.evictOldest(p, p.withoutKeys) {
	}
	for p.keys > p.set.keysEach && p.withKeys.Len() > 1 && t.evictOldest(p, p.withKeys) {
	}
	for p.set.keys > p.set.limits.keys {
		if largest := p.set.largest(); !t.evictOldest(largest, largest.withKeys) {
			return
		}
	}
}

func (p *pool) addKeys(keys int) {
	p.keys += keys
	p.set.keys += keys
}

// largest returns the pool with the most keys. Evicting from it spares small
// pools.
func (ps *poolSet) largest() (most *pool) {
	for _, p := range ps.tenants.Values() {
		if most == nil || p.keys > most.keys {
			most = p
		}
	}
	return most
}

// evictOldest removes the least recently used issuer from a list of p, and
// reports whether there was one. The caller holds t.mu.
func (t *Issuers) evictOldest(p *pool, list *simplelru.LRU[string, *issuer]) bool {
	_, i, ok := list.RemoveOldest()
	if !ok {
		return false
	}
	if list == p.withKeys {
		p.addKeys(-i.size())
	}
	t.release(p, i)
	return true
}

// release records that p no longer has an issuer cached. The caller holds
// t.mu.
func (t *Issuers) release(p *pool, i *issuer) {
	if delete(i.pools, p); len(i.pools) == 0 && t.issuers[i.name] == i {
		delete(t.issuers, i.name)
	}
}

// setKeys replaces the keys of an issuer in all pools that have it cached. The
// caller holds t.mu.
func (t *Issuers) setKeys(i *issuer, keys KeySet) {
	before := i.size()
	i.keys, i.fetchedAt = keys, t.now()
	for p := range i.pools {
		if p.withKeys.Contains(i.name) {
			p.addKeys(i.size() - before)
		}
	}
	for p := range i.pools { // runs after all counts are updated, because rebalance may evict from any pool
		t.rebalance(p, i)
	}
}

// A fetch downloads the keys of an issuer. It is queued or in flight. Several
// pools can queue the same fetch. The first pool with a free slot starts it.
type fetch struct {
	started bool
	done    chan struct{} // closed when the fetch ends
	// context of the request that caused the fetch, without its deadline; parent of the span
	traced context.Context
}

// fetch starts or queues a fetch of i for p, or joins the fetch of i that is queued or running. It returns nil if the
// queue of p is full, without evicting anything. The caller holds t.mu.
func (t *Issuers) fetch(ctx context.Context, p *pool, i *issuer) *fetch {
	joins := i.inFlight != nil && i.inFlight.started || slices.Contains(p.queue, i)
	if !joins && !p.mayStart() && len(p.queue) >= p.set.waitingEach {
		return nil
	}
	t.remember(p, i)
	if i.inFlight == nil {
		i.inFlight = &fetch{done: make(chan struct{}), traced: trace.Detach(ctx)}
	}
	switch {
	case joins:
	case p.mayStart():
		t.startFetch(p, i)
	default:
		if p.queue = append(p.queue, i); len(p.queue) == 1 {
			p.set.queue = append(p.set.queue, p)
		}
	}
	return i.inFlight
}

// mayStart reports whether p may start a fetch.
func (p *pool) mayStart() bool { return p.running < p.set.fetchesEach && p.set.running < p.set.fetches }

// finishFetch records that a fetch of p has ended, and starts queued fetches,
// alternating between tenants. The caller holds t.mu.
func (t *Issuers) finishFetch(p *pool) {
	p.running--
	p.set.running--
	ps := p.set
	for n := 0; n < len(ps.queue); {
		next := ps.queue[n]
		if !next.mayStart() {
			n++
			continue
		}
		i := next.queue[0]
		next.queue = next.queue[1:]
		ps.queue = append(ps.queue[:n], ps.queue[n+1:]...)
		if len(next.queue) > 0 {
			ps.queue = append(ps.queue, next)
		}
		if f := i.inFlight; f != nil && !f.started { // another pool may have started the fetch
			t.startFetch(next, i)
		}
	}
}
