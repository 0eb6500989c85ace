package issuers

import (
	"context"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Reason is why an issuer is trusted. Fetches and cached keys are counted
// per reason, so that one reason cannot use up what another needs.
type Reason int

// The reasons, beginning with those that strangers can influence least.
const (
	Named   Reason = iota // an identity of an organization names the issuer
	Person                // people are known by the issuer
	Matched               // the issuer matches a pattern, so whoever presents a token chooses it
	reasons
)

// A QuotaKey says whose limits the fetch of an issuer's keys counts against.
type QuotaKey struct {
	Tenant string // an organization; for people, the domain of their issuer
	Reason Reason
}

// limits bound the fetches and cached keys of one reason, so that no tenant
// can use up what others need: neither with issuers that do not answer, nor
// with many that do.
type limits struct {
	fetches     int // at the same time
	fetchesEach int // at the same time, of one tenant
	waitingEach int // in the queue of one tenant; more are refused
	keys        int // cached
	keysEach    int // cached, of one tenant
	triedEach   int // cached issuers without keys, of one tenant
	tenants     int // with a pool
}

// The fetches of one tenant are together fewer than the connections that package
// outbound opens to one host, so that no tenant can use up those of a host that
// serves several. A hundred keys take at most 130 KB.
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

// A poolSet is the pools of one reason. Issuers.mu guards it and everything in
// it.
type poolSet struct {
	limits
	tenants *simplelru.LRU[string, *pool]
	running int     // fetches
	keys    int     // cached in all pools
	queue   []*pool // pools with queued fetches, next first
}

// A pool is the fetches and cached issuers of one tenant for one reason.
type pool struct {
	set         *poolSet
	withKeys    *simplelru.LRU[string, *issuer] // issuers whose keys are cached
	withoutKeys *simplelru.LRU[string, *issuer] // other issuers; they never evict one with keys
	keys        int                             // in withKeys
	running     int
	queue       []*issuer
}

// unlimited is the size of LRU lists whose length is bounded by their user.
const unlimited = 1 << 30

// newLRU returns an empty list. NewLRU fails only for a size of 0.
func newLRU[T any]() *simplelru.LRU[string, T] {
	list, _ := simplelru.NewLRU[string, T](unlimited, nil)
	return list
}

// poolFor returns the pool of a key. The caller holds t.mu.
func (t *Issuers) poolFor(q QuotaKey) *pool {
	of := t.pools[q.Reason]
	if p, ok := of.tenants.Get(q.Tenant); ok {
		return p
	}
	p := &pool{set: of, withKeys: newLRU[*issuer](), withoutKeys: newLRU[*issuer]()}
	of.tenants.Add(q.Tenant, p)
	if of.tenants.Len() > of.limits.tenants {
		_, oldest, _ := of.tenants.RemoveOldest()
		for t.evictOldest(oldest, oldest.withKeys) || t.evictOldest(oldest, oldest.withoutKeys) {
		}
	}
	return p
}

// lookup returns the issuer of a name from p or another pool, or a new one.
// The caller holds t.mu.
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

// rebalance moves an issuer of p to withKeys if its keys are cached, and
// evicts others to stay within the limits. The caller holds t.mu.
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

// largest returns the pool with the most keys, so that a small one loses none.
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
	for p := range i.pools { // after all are counted, since this may evict from any of them
		t.rebalance(p, i)
	}
}

// A fetch downloads the keys of an issuer. It is queued or in flight. Several
// pools can queue the same fetch: the first that may start it does.
type fetch struct {
	started bool
	done    chan struct{}   // closed when it ends
	traced  context.Context // of the request that caused it, for its span alone
}

// fetch starts or queues a fetch of i for p, or joins the one in flight. It
// returns nil if the queue of p is full, without evicting anything. The caller
// holds t.mu.
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

// finishFetch records that a fetch of p has ended, and starts queued ones,
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
		if f := i.inFlight; f != nil && !f.started { // not started meanwhile for another pool
			t.startFetch(next, i)
		}
	}
}
