package trust

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A Reason is why an issuer matters, and so which pool its fetches and keys are
// in: one reason cannot take what another has.
type Reason int

// The reasons, the ones that others can least choose first.
const (
	Named   Reason = iota // an identity of an organization names it exactly
	Person                // people are known by it
	Matched               // it matches a pattern, so whoever presents a token chooses it
	reasons
)

// An QuotaKey is for whom an issuer is asked for its keys.
type QuotaKey struct {
	Tenant string // the organization; for people, whatever groups them
	Reason Reason
}

// limits bound what the pools of one reason do and remember, so that no tenant
// can take what others need: not by issuers that do not answer, nor by many that
// do.
type limits struct {
	fetches     int // at once
	fetchesEach int // at once, of one tenant
	waitingEach int // for their turn, of one tenant; more are refused at once
	keys        int // remembered
	keysEach    int // remembered, of one tenant
	triedEach   int // issuers without keys that are remembered, of one tenant
	tenants     int // that are remembered
}

// The fetches of one tenant are together fewer than the connections that package
// outbound opens to one host, so that nobody can take all those of a host that
// serves several. A hundred keys are some 130 KB at most.
var poolLimits = [reasons]limits{
	Named:   {fetches: 128, fetchesEach: 4, waitingEach: 128, keys: 40_000, keysEach: 4000, triedEach: 512, tenants: 10_000},
	Person:  {fetches: 32, fetchesEach: 2, waitingEach: 32, keys: 10_000, keysEach: 1000, triedEach: 128, tenants: 10_000},
	Matched: {fetches: 32, fetchesEach: 2, waitingEach: 16, keys: 10_000, keysEach: 500, triedEach: 128, tenants: 10_000},
}

// poolSet are those of one reason. Issuers.mu guards them and everything in them.
type poolSet struct {
	limits
	tenants *simplelru.LRU[string, *pool]
	running int     // fetches
	keys    int     // remembered in all pools
	queue   []*pool // those with fetches that wait, next first
}

// A pool is what is done and remembered for one tenant for one reason.
type pool struct {
	set         *poolSet
	withKeys    *simplelru.LRU[string, *issuer] // whose keys are known
	withoutKeys *simplelru.LRU[string, *issuer] // whose keys are not: they never push out one that is kept
	keys        int                             // of kept
	running     int
	queue       []*issuer
}

// unlimited is the size of lists whose length is bounded here.
const unlimited = 1 << 30

func newPoolSet(l limits) (*poolSet, error) {
	tenants, err := simplelru.NewLRU[string, *pool](unlimited, nil)
	return &poolSet{limits: l, tenants: tenants}, err
}

// poolFor returns that of an asker. The caller holds the lock.
func (t *Issuers) poolFor(a QuotaKey) *pool {
	of := t.pools[a.Reason]
	if p, ok := of.tenants.Get(a.Tenant); ok {
		return p
	}
	p := &pool{set: of}
	p.withKeys, _ = simplelru.NewLRU[string, *issuer](unlimited, nil)    // it fails for no other
	p.withoutKeys, _ = simplelru.NewLRU[string, *issuer](unlimited, nil) // size than 0
	of.tenants.Add(a.Tenant, p)
	if of.tenants.Len() > of.limits.tenants {
		_, oldest, _ := of.tenants.RemoveOldest()
		for t.evictOldest(oldest, oldest.withKeys) || t.evictOldest(oldest, oldest.withoutKeys) {
		}
	}
	return p
}

// lookup returns the issuer of a name, as p, others or nobody remembers it. The
// caller holds the lock.
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

// remember has p remember an issuer. The caller holds the lock.
func (t *Issuers) remember(p *pool, i *issuer) {
	if _, ok := i.pools[p]; ok {
		return
	}
	t.issuers[i.name] = i
	i.pools[p] = struct{}{}
	p.withoutKeys.Add(i.name, i)
	t.rebalance(p, i)
}

// rebalance keeps an issuer of p with those whose keys are known if that is so, and
// makes room. The caller holds the lock.
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

// largest returns the pool with the most keys: who has few keeps them.
func (ps *poolSet) largest() (most *pool) {
	for _, p := range ps.tenants.Values() {
		if most == nil || p.keys > most.keys {
			most = p
		}
	}
	return most
}

// evictOldest drops the issuer that was not asked for longest from a list of p,
// and tells whether there was one. The caller holds the lock.
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

// release notes that p does not remember an issuer any more. The caller holds the
// lock.
func (t *Issuers) release(p *pool, i *issuer) {
	if delete(i.pools, p); len(i.pools) == 0 && t.issuers[i.name] == i {
		delete(t.issuers, i.name)
	}
}

// setKeys replaces what is known of the keys of an issuer in all pools that
// remember it. The caller holds the lock.
func (t *Issuers) setKeys(i *issuer, keys KeySet) {
	before := i.size()
	i.keys, i.fetchedAt = keys, t.now()
	for p := range i.pools {
		if p.withKeys.Contains(i.name) {
			p.addKeys(i.size() - before)
		}
	}
	for p := range i.pools { // once all are counted, since room can be made in any of them
		t.rebalance(p, i)
	}
}

// A fetch is one question to an issuer, which waits for its turn or is under
// way. Several pools can wait for the same: the first whose turn it is asks.
type fetch struct {
	started bool
	done    chan struct{} // closed at its end
}

// fetch has the keys of i fetched for p, unless that is under way, and returns
// the fetch, or nil if too many of p wait already: who is refused pushes nobody
// out. The caller holds the lock.
func (t *Issuers) fetch(p *pool, i *issuer) *fetch {
	joins := i.inFlight != nil && i.inFlight.started || p.hasQueued(i)
	if !joins && !p.mayStart() && len(p.queue) >= p.set.waitingEach {
		return nil
	}
	t.remember(p, i)
	if i.inFlight == nil {
		i.inFlight = &fetch{done: make(chan struct{})}
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

func (p *pool) hasQueued(i *issuer) bool {
	for _, w := range p.queue {
		if w == i {
			return true
		}
	}
	return false
}

// mayStart tells whether p may begin a fetch.
func (p *pool) mayStart() bool { return p.running < p.set.fetchesEach && p.set.running < p.set.fetches }

// finishFetch notes that a fetch of p has ended, and gives others their turn: one of
// each tenant after the other. The caller holds the lock.
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
		if f := i.inFlight; f != nil && !f.started { // not asked meanwhile for another
			t.startFetch(next, i)
		}
	}
}
