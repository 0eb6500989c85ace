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
	"github.com/holdfast-dev/holdfast/internal/store/tablecache"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	verdictsCached = 1 << 14
	verdictLife    = 5 * time.Second // maximum time until a pull is judged by a changed advisory or tag
)

// A Gate decides which pulls the rules refuse.
//
// The decision is the same for all callers, except for identities that a rule exempts. An advisory counts only if it is
// in a group that contains the repo. So nobody in another folder can stop a pull. An exception counts only if it is in
// the group of the rule or above it. So the administrator of a folder cannot lift a rule of the organization.
type Gate struct {
	judge
	rules    *tablecache.Cache[findingdb.RuleSet]
	verdicts *verdictCache
}

// Contents reads the content of images. The registry implements it.
type Contents interface {
	// DescribesImage reports whether the configuration of an artifact describes an image, so that some clients run it.
	DescribesImage(ctx context.Context, repo resource.UID, m registry.Manifest, public bool) (bool, error)

	// SignedBy returns the first signer of an image that a group trusts, or "" and the reason why there is none. Both are
	// "" for content that needs no signature.
	SignedBy(ctx context.Context, repo resource.UID, digest string, group resource.UID) (signer, why string, err error)
}

// NewGate returns a Gate over a database.
func NewGate(
	packages *findingdb.Store, images *imagedb.Store, advisories *advisorydb.Store, contents Contents,
	m metric.Metrics,
) *Gate {
	g := &Gate{judge: judge{packages, images, advisories, contents}, rules: findingdb.NewRuleCache(packages),
		verdicts: newVerdictCache(m.Cache("verdicts"))}
	packages.OnRevision(g.verdicts.clear)
	return g
}

// Check returns why the caller may not pull a manifest, or "" if the caller may. public means that the caller may pull
// only because the repo is public. In this case the reason names no finding. Only manifests that a client may run are
// refused. An index is not refused, because the client requests the image for its platform next.
func (g *Gate) Check(
	ctx context.Context, repo resource.UID, m registry.Manifest, public bool,
) (string, error) {
	set, err := g.rules.Get(ctx)
	if err != nil || set.Empty() {
		return "", err
	}
	caller, _ := authz.CallerFrom(ctx)
	rules, err := g.applicable(ctx, set.Over(repo), repo, m, public)
	if err != nil {
		return "", err
	}
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

// applicable returns the enforced rules, or none if no client runs the manifest. The result does not depend on the
// caller.
func (g *Gate) applicable(
	ctx context.Context, rules []vuln.PullRule, repo resource.UID, m registry.Manifest, public bool,
) ([]vuln.PullRule, error) {
	rules = slices.DeleteFunc(rules, func(r vuln.PullRule) bool { return !r.Enforce })
	if len(rules) == 0 || m.Runs() {
		return rules, nil
	}
	if runs, err := g.contents.DescribesImage(ctx, repo, m, public); err != nil || !runs {
		return nil, err
	}
	return rules, nil
}

// verdict returns the verdict of the rules on an image. It uses the cache if the rules and the exceptions are
// unchanged. A change of advisories or tags may be ignored for up to verdictLife.
func (g *Gate) verdict(
	ctx context.Context, key finding.ImageKey, rules []vuln.PullRule, set *findingdb.RuleSet,
) (verdict, error) {
	// Both are read before the cached verdict, so that a change in between is not missed.
	asOf, current := g.packages.Time(), g.packages.Current()
	v, ok, cleared := g.verdicts.get(key)
	if ok = ok && current && v.rules == set && asOf.Before(v.until) && !asOf.Before(v.from); ok {
		g.verdicts.lookups.Count(true)
		return v, nil
	}
	g.verdicts.lookups.Count(false)
	verdicts, err := g.judgements(ctx, []finding.ImageKey{key}, rules, asOf)
	if err != nil {
		return verdict{}, err
	}
	v = verdicts[key]
	v.rules, v.from = set, asOf
	if end := asOf.Add(verdictLife); v.until.IsZero() || end.Before(v.until) {
		v.until = end
	}
	if !v.unsigned { // a verdict about a missing signature is not cached, so that a new signature counts immediately
		g.verdicts.put(key, v, cleared)
	}
	return v, nil
}

// A verdictCache holds verdicts until the revision of the database changes. Every change of a rule or an exception
// changes the revision. A verdictCache is safe for concurrent use.
type verdictCache struct {
	lookups metric.Cache

	mu       sync.Mutex
	verdicts *lru.Cache[finding.ImageKey, verdict]
	cleared  uint64 // number of times that the cache was cleared
}

func newVerdictCache(lookups metric.Cache) *verdictCache {
	cache, _ := lru.New[finding.ImageKey, verdict](verdictsCached) // New fails only if the size is below one
	return &verdictCache{lookups: lookups, verdicts: cache}
}

func (c *verdictCache) get(k finding.ImageKey) (v verdict, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok = c.verdicts.Get(k)
	return v, ok, c.cleared
}

// put adds a verdict. It does nothing if the cache was cleared since get, because the verdict may be based on data from
// before the change.
func (c *verdictCache) put(k finding.ImageKey, v verdict, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.verdicts.Add(k, v)
	}
}

func (c *verdictCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.verdicts.Purge()
}
