package sts

import (
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/trust"
)

const (
	identitiesKnown = 16_384

	// patternsKnown bounds the programs of all patterns that are remembered, in
	// instructions, of which each takes some 50 to 100 bytes. It is enough for
	// identitiesKnown with patterns of a usual size.
	patternsKnown = 2 << 20
)

// A party is an identity ready to be compared with credentials.
type party struct {
	identity resource.Identity
	matcher  *resource.Matcher // nil if no credential stands for it
	tooLarge bool              // its patterns are, which is why no credential stands for it
	keys     trust.KeySet      // of static keys
	asker    trust.Asker       // of its issuer
	seen     atomic.Int64      // when it was last noted as seen, in milliseconds
}

func newParty(i resource.Identity, audiences []string) *party {
	p := &party{identity: i}
	if i.UID.IsRoot() && !i.OfInstallation() {
		return p // a provider's person: its issuer alone does not vouch for them
	}
	m, err := resource.NewMatcher(i.Relationship, audiences)
	if err != nil {
		p.tooLarge = i.Relationship.PatternsTooLarge()
		return p // was stored by another version; nobody is taken for it
	}
	if k := i.Relationship.StaticKeys; k != nil {
		if p.keys, err = trust.ParseKeys([]byte(k.IssuerKeys)); err != nil {
			return p
		}
	}
	p.matcher, p.asker = m, askerFor(i, m)
	if i.LastSeenTime.After(i.CreateTime) { // to be created is not to be seen
		p.seen.Store(i.LastSeenTime.UnixMilli())
	}
	return p
}

// size is what the party counts for among those that are remembered.
func (p *party) size() int {
	if p.matcher == nil {
		return 1
	}
	return 1 + p.matcher.Size()
}

// due tells, at most once a minute, that it is time to note the party as seen.
func (p *party) due(now time.Time) bool {
	last := p.seen.Load()
	return now.UnixMilli()-last >= seenEvery.Milliseconds() && p.seen.CompareAndSwap(last, now.UnixMilli())
}

const seenEvery = time.Minute

// A memory remembers identities that were assumed lately: to read one would be
// the greater part of an exchange. An identity that was read before it changed
// and arrives after is not taken.
type memory struct {
	mu      sync.Mutex
	parties *lru.Cache[resource.UID, *party]
	size    atomic.Int64 // of all parties
	forgets uint64
}

func newMemory() (*memory, error) {
	m := &memory{}
	var err error
	m.parties, err = lru.NewWithEvict(identitiesKnown, func(_ resource.UID, p *party) { m.size.Add(-int64(p.size())) })
	return m, err
}

// get returns an identity, or else a mark to hand in with the one that is about
// to be read.
func (m *memory) get(uid resource.UID) (p *party, mark uint64) {
	if p, ok := m.parties.Get(uid); ok {
		return p, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return nil, m.forgets
}

func (m *memory) put(p *party, mark uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark != m.forgets {
		return
	}
	m.parties.Remove(p.identity.UID) // what another has put there meanwhile
	m.parties.Add(p.identity.UID, p)
	for m.size.Add(int64(p.size())); m.size.Load() > patternsKnown && m.parties.Len() > 1; {
		m.parties.RemoveOldest()
	}
}

// forget drops an identity that has changed; "" drops all.
func (m *memory) forget(uid resource.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgets++
	if uid == "" {
		m.parties.Purge()
		return
	}
	m.parties.Remove(uid)
}
