package sts

import (
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

const (
	maxCachedPrincipals = 16_384

	// maxCachedInstructions bounds the compiled patterns in the cache, in
	// instructions of 50 to 100 bytes each. It is enough for
	// maxCachedPrincipals with patterns of a usual size.
	maxCachedInstructions = 2 << 20
)

// A principal is an identity ready to be compared with credentials.
type principal struct {
	identity resource.Identity
	matcher  *resource.Matcher // nil if no credential can match
	tooLarge bool              // no credential can match because the patterns are too large
	keys     issuers.KeySet    // static keys
	quota    issuers.QuotaKey  // whose quota fetches of its issuer's keys count against
	lastUse  atomic.Int64      // when its use was last recorded, in milliseconds
}

func newPrincipal(i resource.Identity, audiences []string) *principal {
	p := &principal{identity: i}
	if i.UID.IsRoot() && !i.OfInstallation() {
		return p // the person of a provider: their issuer alone does not vouch for them
	}
	m, err := resource.NewMatcher(i.Relationship, audiences)
	if err != nil {
		p.tooLarge = i.Relationship.PatternsTooLarge()
		return p // it was stored by another version; no credential matches it
	}
	if k := i.Relationship.StaticKeys; k != nil {
		if p.keys, err = issuers.ParseKeys([]byte(k.IssuerKeys)); err != nil {
			return p
		}
	}
	p.matcher, p.quota = m, quotaFor(i, m)
	if i.LastSeenTime.After(i.CreateTime) { // creation does not count as use
		p.lastUse.Store(i.LastSeenTime.UnixMilli())
	}
	return p
}

// size is what the principal counts towards maxCachedInstructions.
func (p *principal) size() int {
	if p.matcher == nil {
		return 1
	}
	return 1 + p.matcher.Size()
}

// useDue reports, at most once a minute, that the use of the principal is to
// be recorded.
func (p *principal) useDue(now time.Time) bool {
	last := p.lastUse.Load()
	return now.UnixMilli()-last >= useInterval.Milliseconds() && p.lastUse.CompareAndSwap(last, now.UnixMilli())
}

const useInterval = time.Minute

// A principalCache holds identities that were used recently, because reading
// one would be most of the cost of an exchange. An identity that was read
// before it changed and is put after is not stored.
type principalCache struct {
	mu         sync.Mutex
	entries    *lru.Cache[resource.UID, *principal]
	size       atomic.Int64 // total of entries
	generation uint64
	lookups    metric.Cache
}

func newPrincipalCache() *principalCache {
	m := &principalCache{}
	evicted := func(_ resource.UID, p *principal) { m.size.Add(-int64(p.size())) }
	m.entries, _ = lru.NewWithEvict(maxCachedPrincipals, evicted) // fails only for a size of 0
	return m
}

// get returns an identity or, if it is not cached, the generation to pass to
// put.
func (m *principalCache) get(uid resource.UID) (p *principal, generation uint64) {
	p, ok := m.entries.Get(uid)
	m.lookups.Count(ok)
	if ok {
		return p, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return nil, m.generation
}

func (m *principalCache) put(p *principal, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation != m.generation {
		return
	}
	m.entries.Remove(p.identity.UID) // another caller may have put it meanwhile
	m.entries.Add(p.identity.UID, p)
	for m.size.Add(int64(p.size())); m.size.Load() > maxCachedInstructions && m.entries.Len() > 1; {
		m.entries.RemoveOldest()
	}
}

// invalidate removes an identity that has changed; "" removes all.
func (m *principalCache) invalidate(uid resource.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	if uid == "" {
		m.entries.Purge()
		return
	}
	m.entries.Remove(uid)
}

// quotaFor returns whose quota a fetch of the issuer's keys counts against. m
// is the matcher of the identity. An identity without a UID stands for nobody
// in particular: the credential chose its issuer.
func quotaFor(i resource.Identity, m *resource.Matcher) issuers.QuotaKey {
	switch {
	case i.UID == "" || !m.NamesIssuer():
		return issuers.QuotaKey{Tenant: string(i.UID.Root()), Reason: issuers.Matched}
	case i.UID.IsRoot() && i.Relationship.ClaimMatch != nil:
		return personQuota(i.Relationship.ClaimMatch.Issuer)
	}
	return issuers.QuotaKey{Tenant: string(i.UID.Root()), Reason: issuers.Named}
}

// personQuota returns the quota of a person's issuer. People belong to no
// organization, so they are grouped by the domain of their issuer: an attacker
// with many issuers has them in one domain, or in a few.
func personQuota(issuer string) issuers.QuotaKey {
	host := ""
	if u, err := url.Parse(issuer); err == nil {
		host = u.Hostname()
	}
	if _, err := netip.ParseAddr(host); err == nil {
		host = "addresses" // a host can have any number of them
	}
	labels := strings.Split(strings.ToLower(host), ".")
	return issuers.QuotaKey{Tenant: strings.Join(labels[max(0, len(labels)-2):], "."), Reason: issuers.Person}
}
