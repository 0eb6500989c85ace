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

// An Asker is for whom an issuer is asked for its keys.
type Asker struct {
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

// pools are those of one reason. Issuers.mu guards them and everything in them.
type pools struct {
	limits
	tenants *simplelru.LRU[string, *pool]
	running int     // fetches
	keys    int     // remembered in all pools
	queue   []*pool // those with fetches that wait, next first
}

// A pool is what is done and remembered for one tenant for one reason.
type pool struct {
	of      *pools
	kept    *simplelru.LRU[string, *issuer] // whose keys are known
	tried   *simplelru.LRU[string, *issuer] // whose keys are not: they never push out one that is kept
	keys    int                             // of kept
	running int
	waiting []*issuer
}

// unlimited is the size of lists whose length is bounded here.
const unlimited = 1 << 30

func newPools(l limits) (*pools, error) {
	tenants, err := simplelru.NewLRU[string, *pool](unlimited, nil)
	return &pools{limits: l, tenants: tenants}, err
}

// pool returns that of an asker. The caller holds the lock.
func (t *Issuers) pool(a Asker) *pool {
	of := t.pools[a.Reason]
	if p, ok := of.tenants.Get(a.Tenant); ok {
		return p
	}
	p := &pool{of: of}
	p.kept, _ = simplelru.NewLRU[string, *issuer](unlimited, nil)  // it fails for no other
	p.tried, _ = simplelru.NewLRU[string, *issuer](unlimited, nil) // size than 0
	of.tenants.Add(a.Tenant, p)
	if of.tenants.Len() > of.limits.tenants {
		_, oldest, _ := of.tenants.RemoveOldest()
		for t.forgetOldest(oldest, oldest.kept) || t.forgetOldest(oldest, oldest.tried) {
		}
	}
	return p
}

// find returns the issuer of a name, as p, others or nobody remembers it. The
// caller holds the lock.
func (t *Issuers) find(p *pool, name string) *issuer {
	if i, ok := p.kept.Get(name); ok {
		return i
	}
	if i, ok := p.tried.Get(name); ok {
		return i
	}
	if i, ok := t.known[name]; ok {
		return i
	}
	return &issuer{name: name, holders: map[*pool]struct{}{}}
}

// hold has p remember an issuer. The caller holds the lock.
func (t *Issuers) hold(p *pool, i *issuer) {
	if _, ok := i.holders[p]; ok {
		return
	}
	t.known[i.name] = i
	i.holders[p] = struct{}{}
	p.tried.Add(i.name, i)
	t.place(p, i)
}

// place keeps an issuer of p with those whose keys are known if that is so, and
// makes room. The caller holds the lock.
func (t *Issuers) place(p *pool, i *issuer) {
	if !i.found.IsZero() && p.tried.Remove(i.name) {
		p.kept.Add(i.name, i)
		p.count(i.size())
	}
	for p.tried.Len() > p.of.triedEach && t.forgetOldest(p, p.tried) {
	}
	for p.keys > p.of.keysEach && p.kept.Len() > 1 && t.forgetOldest(p, p.kept) {
	}
	for p.of.keys > p.of.limits.keys {
		if largest := p.of.largest(); !t.forgetOldest(largest, largest.kept) {
			return
		}
	}
}

func (p *pool) count(keys int) {
	p.keys += keys
	p.of.keys += keys
}

// largest returns the pool with the most keys: who has few keeps them.
func (ps *pools) largest() (most *pool) {
	for _, p := range ps.tenants.Values() {
		if most == nil || p.keys > most.keys {
			most = p
		}
	}
	return most
}

// forgetOldest drops the issuer that was not asked for longest from a list of p,
// and tells whether there was one. The caller holds the lock.
func (t *Issuers) forgetOldest(p *pool, list *simplelru.LRU[string, *issuer]) bool {
	_, i, ok := list.RemoveOldest()
	if !ok {
		return false
	}
	if list == p.kept {
		p.count(-i.size())
	}
	t.release(p, i)
	return true
}

// release notes that p does not remember an issuer any more. The caller holds the
// lock.
func (t *Issuers) release(p *pool, i *issuer) {
	if delete(i.holders, p); len(i.holders) == 0 && t.known[i.name] == i {
		delete(t.known, i.name)
	}
}

// learn replaces what is known of the keys of an issuer in all pools that
// remember it. The caller holds the lock.
func (t *Issuers) learn(i *issuer, keys KeySet) {
	before := i.size()
	i.keys, i.found = keys, t.now()
	for p := range i.holders {
		if p.kept.Contains(i.name) {
			p.count(i.size() - before)
		}
	}
	for p := range i.holders { // once all are counted, since room can be made in any of them
		t.place(p, i)
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
	joins := i.ongoing != nil && i.ongoing.started || p.awaits(i)
	if !joins && !p.mayRun() && len(p.waiting) >= p.of.waitingEach {
		return nil
	}
	t.hold(p, i)
	if i.ongoing == nil {
		i.ongoing = &fetch{done: make(chan struct{})}
	}
	switch {
	case joins:
	case p.mayRun():
		t.start(p, i)
	default:
		if p.waiting = append(p.waiting, i); len(p.waiting) == 1 {
			p.of.queue = append(p.of.queue, p)
		}
	}
	return i.ongoing
}

func (p *pool) awaits(i *issuer) bool {
	for _, w := range p.waiting {
		if w == i {
			return true
		}
	}
	return false
}

// mayRun tells whether p may begin a fetch.
func (p *pool) mayRun() bool { return p.running < p.of.fetchesEach && p.of.running < p.of.fetches }

// finish notes that a fetch of p has ended, and gives others their turn: one of
// each tenant after the other. The caller holds the lock.
func (t *Issuers) finish(p *pool) {
	p.running--
	p.of.running--
	ps := p.of
	for n := 0; n < len(ps.queue); {
		next := ps.queue[n]
		if !next.mayRun() {
			n++
			continue
		}
		i := next.waiting[0]
		next.waiting = next.waiting[1:]
		ps.queue = append(ps.queue[:n], ps.queue[n+1:]...)
		if len(next.waiting) > 0 {
			ps.queue = append(ps.queue, next)
		}
		if f := i.ongoing; f != nil && !f.started { // not asked meanwhile for another
			t.start(next, i)
		}
	}
}
