package policy

import (
	"context"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	verdictsCached = 1 << 14
	verdictLife    = 5 * time.Second // how late a pull may learn of an advisory or a tag
)

// A Gate says which pulls the rules refuse.
//
// Who pulls does not matter but for those that a rule exempts. What counts is decided by
// where the rule is: advisories in its group, or below it on the way to the repo, so that
// nobody in another folder can stop a pull; and exceptions in its group or above it, so that
// whoever administers a folder cannot lift the rule of the organization.
type Gate struct {
	judge
	rules    *store.CachedTable[findingdb.RuleSet]
	verdicts *verdictCache
}

// A Signed returns who of the signers of a group has signed an image, or "" and why nobody has; and "" twice for what needs
// no signature.
type Signed func(
	ctx context.Context, repo resource.UID, digest string, group resource.UID,
) (signer, why string, err error)

// NewGate returns a Gate over a database.
func NewGate(
	packages *findingdb.Store, images *imagedb.Store, advisories *advisorydb.Store, signed Signed, m metric.Metrics,
) *Gate {
	g := &Gate{judge: judge{packages, images, advisories, signed}, rules: findingdb.NewRuleCache(packages),
		verdicts: newVerdictCache(m.Cache("verdicts"))}
	packages.OnRevision(g.verdicts.clear)
	return g
}

// Check returns why the pull of a manifest is refused to the caller, or "". public says that the caller may pull only because everybody may: then the reason names
// no finding. Only manifests of images are refused. An index is not, because who pulls asks for
// the image of a platform next.
func (g *Gate) Check(
	ctx context.Context, repo resource.UID, m registry.Manifest, public bool,
) (string, error) {
	set, err := g.rules.Get(ctx)
	if err != nil || set.Empty() {
		return "", err
	}
	caller, _ := authz.CallerFrom(ctx)
	rules := applicable(set.Over(repo), m)
	if !slices.ContainsFunc(rules, func(r vuln.PullRule) bool { return !r.Exempts(caller.Identity) }) {
		return "", nil
	}
	v, err := g.verdict(ctx, finding.ImageKey{Repo: repo, Digest: m.Digest}, rules, set)
	if err != nil {
		return "", err
	}
	for _, r := range rules {
		if why := v.reasons[r.UID]; why != "" && !r.Exempts(caller.Identity) {
			if public {
				why = "a rule of the organization refuses it"
			}
			return why, nil
		}
	}
	return "", nil
}

// applicable returns those of the rules that are enforced and about a manifest. Whether one is
// about it depends on nothing but the manifest.
func applicable(all []vuln.PullRule, m registry.Manifest) []vuln.PullRule {
	return slices.DeleteFunc(all, func(r vuln.PullRule) bool {
		switch {
		case !r.Enforce:
			return true
		case r.Unsigned:
			return !m.Runs()
		}
		return !m.ClaimsImage()
	})
}

// verdict returns what rules say about an image, from memory if nothing that it depends on
// can have changed, except that advisories and tags may have within verdictLife.
func (g *Gate) verdict(
	ctx context.Context, key finding.ImageKey, rules []vuln.PullRule, set *findingdb.RuleSet,
) (verdict, error) {
	now, current := g.packages.Time(), g.packages.Current() // before the cache is asked
	v, ok, cleared := g.verdicts.get(key)
	if ok = ok && current && v.rules == set && now.Before(v.until) && !now.Before(v.from); ok {
		g.verdicts.lookups.Count(true)
		return v, nil
	}
	g.verdicts.lookups.Count(false)
	all, err := g.judgements(ctx, []finding.ImageKey{key}, rules, now)
	if err != nil {
		return verdict{}, err
	}
	v = all[key]
	v.rules, v.from = set, now
	if end := now.Add(verdictLife); v.until.IsZero() || end.Before(v.until) {
		v.until = end
	}
	if !v.unsigned { // otherwise a signature counts from when it was pushed
		g.verdicts.put(key, v, cleared)
	}
	return v, nil
}

// A verdictCache holds verdicts until the revision moves, which it does when a rule or an
// exception changes.
type verdictCache struct {
	lookups metric.Cache

	mu      sync.Mutex
	all     *lru.Cache[finding.ImageKey, verdict]
	cleared uint64 // how often
}

func newVerdictCache(lookups metric.Cache) *verdictCache {
	all, _ := lru.New[finding.ImageKey, verdict](verdictsCached) // fails for sizes below one only
	return &verdictCache{lookups: lookups, all: all}
}

func (c *verdictCache) get(k finding.ImageKey) (v verdict, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok = c.all.Get(k)
	return v, ok, c.cleared
}

// put adds a verdict, unless the cache was cleared since get: then it may have been made
// before the change.
func (c *verdictCache) put(k finding.ImageKey, v verdict, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.all.Add(k, v)
	}
}

func (c *verdictCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.all.Purge()
}
