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

	// maxCachedInstructions bounds the compiled patterns in the cache. An
	// instruction takes 50 to 100 bytes. The limit is enough for
	// maxCachedPrincipals with patterns of a usual size.
	maxCachedInstructions = 2 << 20
)

// A principal is an identity whose patterns and keys are parsed, so that credentials
// can be compared with it.
type principal struct {
	identity resource.Identity
	matcher  *resource.Matcher // nil if no credential can match
	tooLarge bool              // whether the patterns are too large, so that no credential can match
	keys     issuers.KeySet    // static keys
	quota    issuers.QuotaKey  // quota for fetching the keys of its issuer
	lastUse  atomic.Int64      // when the use of the identity was last recorded, in milliseconds since 1970
}

func newPrincipal(i resource.Identity, audiences []string) *principal {
	p := &principal{identity: i}
	if i.UID.IsRoot() && !i.OfInstallation() {
		return p // a person who signs in with a provider, for whom the issuer alone cannot vouch
	}
	m, err := resource.NewMatcher(i.Relationship, audiences)
	if err != nil {
		p.tooLarge = i.Relationship.PatternsTooLarge()
		return p // another version of the service has stored the identity; no credential matches it
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

// size returns the number of instructions that the principal counts towards
// maxCachedInstructions.
func (p *principal) size() int {
	if p.matcher == nil {
		return 1
	}
	return 1 + p.matcher.Size()
}

// useDue reports whether the use of the principal must be recorded. It returns true at most once a minute.
func (p *principal) useDue(now time.Time) bool {
	last := p.lastUse.Load()
	return now.UnixMilli()-last >= useInterval.Milliseconds() && p.lastUse.CompareAndSwap(last, now.UnixMilli())
}

const useInterval = time.Minute

// A principalCache holds recently used identities, because reading an identity would be most of the cost of an
// exchange. It does not store an identity that was read before a change and put after the change. It is safe for
// concurrent use.
type principalCache struct {
	mu         sync.Mutex
	entries    *lru.Cache[resource.UID, *principal]
	size       atomic.Int64 // total size of entries
	generation uint64       // number of changes; a put with an older generation is ignored
	lookups    metric.Cache
}

func newPrincipalCache() *principalCache {
	m := &principalCache{}
	evicted := func(_ resource.UID, p *principal) { m.size.Add(-int64(p.size())) }
	m.entries, _ = lru.NewWithEvict(maxCachedPrincipals, evicted) // lru.NewWithEvict fails only for a size of 0
	return m
}

// get returns an identity. If it is not cached, get returns nil and the generation
// to pass to put.
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

// has reports whether p is cached.
func (m *principalCache) has(p *principal) bool {
	cached, ok := m.entries.Peek(p.identity.UID)
	return ok && cached == p
}

func (m *principalCache) put(p *principal, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation != m.generation {
		return
	}
	m.entries.Remove(p.identity.UID) // another caller may have put the same identity
	m.entries.Add(p.identity.UID, p)
	for m.size.Add(int64(p.size())); m.size.Load() > maxCachedInstructions && m.entries.Len() > 1; {
		m.entries.RemoveOldest()
	}
}

// invalidate removes an identity that has changed. The uid "" removes all
// identities.
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

// quotaFor returns the quota for fetching the keys of the identity's issuer. m is the matcher of the identity. An
// identity without a UID was made from a credential, so the sender of the credential has chosen the issuer.
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
// organization, so their quota depends on the domain of the issuer, because an
// attacker with many issuers has them in one or a few domains.
func personQuota(issuer string) issuers.QuotaKey {
	host := ""
	if u, err := url.Parse(issuer); err == nil {
		host = u.Hostname()
	}
	if _, err := netip.ParseAddr(host); err == nil {
		host = "addresses" // IP addresses share one quota, because a host can have any number of them
	}
	labels := strings.Split(strings.ToLower(host), ".")
	return issuers.QuotaKey{Tenant: strings.Join(labels[max(0, len(labels)-2):], "."), Reason: issuers.Person}
}
