package finding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
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
	v, err := g.verdict(ctx, imageKey{repo, m.Digest}, rules, set)
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
	ctx context.Context, key imageKey, rules []vuln.PullRule, set *findingdb.RuleSet,
) (verdict, error) {
	now, current := g.packages.Time(), g.packages.Current() // before the cache is asked
	v, ok, cleared := g.verdicts.get(key)
	if ok = ok && current && v.rules == set && now.Before(v.until) && !now.Before(v.from); ok {
		g.verdicts.lookups.Count(true)
		return v, nil
	}
	g.verdicts.lookups.Count(false)
	all, err := g.judgements(ctx, []imageKey{key}, rules, now)
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

// An imageKey names an image of a repo.
type imageKey struct {
	repo   resource.UID
	digest string
}

// A verdict is what rules say about an image.
type verdict struct {
	rules       *findingdb.RuleSet
	reasons     map[resource.UID]string // by rule, why it refuses the image
	unsigned    bool                    // because it is not signed
	from, until time.Time               // when that may be another; until is zero if time alone changes nothing
}

// A verdictCache holds verdicts until the revision moves, which it does when a rule or an
// exception changes.
type verdictCache struct {
	lookups metric.Cache

	mu      sync.Mutex
	all     *lru.Cache[imageKey, verdict]
	cleared uint64 // how often
}

func newVerdictCache(lookups metric.Cache) *verdictCache {
	all, _ := lru.New[imageKey, verdict](verdictsCached) // fails for sizes below one only
	return &verdictCache{lookups: lookups, all: all}
}

func (c *verdictCache) get(k imageKey) (v verdict, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok = c.all.Get(k)
	return v, ok, c.cleared
}

// put adds a verdict, unless the cache was cleared since get: then it may have been made
// before the change.
func (c *verdictCache) put(k imageKey, v verdict, cleared uint64) {
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

// A judge applies rules to images.
type judge struct {
	packages   *findingdb.Store
	images     *imagedb.Store
	advisories *advisorydb.Store
	signed     Signed
}

// refuses reports whether a rule is about a finding, whatever the exceptions are, and when it
// begins to be if it is not yet: all conditions of rules are here.
func refuses(r vuln.PullRule, v Finding, at time.Time) (refused bool, begins time.Time) {
	if int32(v.Severity) < r.MinSeverity || r.Fixable && len(v.Fixed) == 0 || r.KEV && !v.Known {
		return false, time.Time{}
	}
	begins = v.FirstSeen.AddDate(0, 0, int(r.GraceDays))
	return !at.Before(begins), begins
}

// grounds is what rules decide by, for several images.
type grounds struct {
	states     map[imageKey]registry.ImageState
	packages   map[string][]int64 // by digest
	unmatched  map[int64]bool
	known      map[int64]registry.Package
	hits       map[int64][]findingdb.Hit // by package
	advisories map[int64]vuln.Advisory
	exceptions *exceptionSet
	tags       map[imageKey][]string
	exploited  map[resource.UID]map[vuln.CVE]bool // by the group of the catalog
}

// judgements returns what rules of one organization say about images at a time.
func (j judge) judgements(
	ctx context.Context, keys []imageKey, rules []vuln.PullRule, at time.Time,
) (map[imageKey]verdict, error) {
	var e grounds
	var err error
	if slices.ContainsFunc(rules, func(r vuln.PullRule) bool { return !r.Unsigned }) {
		e, err = j.gather(ctx, keys, at)
	}
	if err == nil && slices.ContainsFunc(rules, func(r vuln.PullRule) bool { return r.KEV }) {
		err = j.addExploited(ctx, keys, &e)
	}
	if err != nil {
		return nil, err
	}
	all := map[imageKey]verdict{}
	for _, key := range keys {
		v := verdict{reasons: map[resource.UID]string{}}
		if e.exceptions != nil {
			v.bringForward(e.exceptions.begins(at), at)
		}
		for _, r := range rules {
			switch {
			case !r.Target.Covers(key.repo):
			case r.Unsigned:
				if err := j.judgeSigned(ctx, key, r, &v); err != nil {
					return nil, err
				}
			default:
				v.reasons[r.UID] = e.judge(key, r, at, &v)
			}
		}
		all[key] = v
	}
	return all, nil
}

// judgeSigned adds to a verdict whether a rule refuses an image because nobody has signed it.
// As for exceptions, the signers in the group of the rule or above it count: nobody below can
// lift the rule.
func (j judge) judgeSigned(ctx context.Context, key imageKey, r vuln.PullRule, v *verdict) error {
	signer, why, err := j.signed(ctx, key.repo, key.digest, r.Home())
	if errors.Is(err, fault.NotFound) {
		why, err = "it was deleted a moment ago", nil
	}
	v.reasons[r.UID] = ""
	if signer == "" && why != "" {
		v.reasons[r.UID], v.unsigned = why, true
	}
	return err
}

// gather reads what is needed to judge images.
func (j judge) gather(ctx context.Context, keys []imageKey, at time.Time) (e grounds, err error) {
	byRepo := map[resource.UID][]string{}
	var digests []string
	var repos []resource.UID
	for _, k := range keys {
		if byRepo[k.repo] == nil {
			repos = append(repos, k.repo)
		}
		byRepo[k.repo] = append(byRepo[k.repo], k.digest)
		digests = append(digests, k.digest)
	}
	slices.Sort(digests)
	if e.exceptions, err = exceptionsOn(ctx, j.packages, repos, at, at.Add(verdictLife)); err != nil {
		return e, err
	}
	e.states, e.tags = map[imageKey]registry.ImageState{}, map[imageKey][]string{}
	for repo, of := range byRepo {
		states, err := j.images.ImageStates(ctx, repo, of)
		if err != nil {
			return e, err
		}
		for d, state := range states {
			e.states[imageKey{repo, d}] = state
		}
		if !e.exceptions.byTag {
			continue
		}
		tags, err := j.images.TagsOf(ctx, repo, of)
		if err != nil {
			return e, err
		}
		for d, names := range tags {
			e.tags[imageKey{repo, d}] = names
		}
	}
	if e.packages, e.unmatched, err = j.packages.PackageSets(ctx, slices.Compact(digests)); err != nil {
		return e, err
	}
	return e, j.matches(ctx, repos, &e)
}

// matches reads which advisories of the organizations of repos affect the packages.
func (j judge) matches(ctx context.Context, repos []resource.UID, e *grounds) error {
	var ids []int64
	for _, of := range e.packages {
		ids = append(ids, of...)
	}
	slices.Sort(ids)
	hits, err := j.packages.HitsOf(ctx, slices.Compact(ids), roots(repos))
	if err != nil {
		return err
	}
	e.hits, e.advisories = map[int64][]findingdb.Hit{}, map[int64]vuln.Advisory{}
	var hit, keys []int64
	for _, h := range hits {
		e.hits[h.Package] = append(e.hits[h.Package], h)
		hit, keys = append(hit, h.Package), append(keys, h.Advisory)
	}
	slices.Sort(hit)
	slices.Sort(keys)
	if e.known, err = j.packages.ByID(ctx, slices.Compact(hit)); err != nil {
		return err
	}
	found, err := j.advisories.AdvisoriesByKey(ctx, slices.Compact(keys))
	for _, a := range found {
		e.advisories[store.Segment(a.UID)] = a
	}
	return err
}

// addExploited reads what catalogs of the organizations of images say about the advisories.
func (j judge) addExploited(ctx context.Context, keys []imageKey, e *grounds) (err error) {
	var repos []resource.UID
	for _, k := range keys {
		repos = append(repos, k.repo)
	}
	var cves []vuln.CVE
	for _, a := range e.advisories {
		cves = append(cves, cvesAmong(names(a))...)
	}
	e.exploited, err = j.advisories.KnownExploited(ctx, roots(repos), cves)
	return err
}

// judge returns why a rule refuses an image, or "", and brings forward the time until which
// that holds.
func (e grounds) judge(key imageKey, r vuln.PullRule, at time.Time, v *verdict) string {
	state, ok := e.states[key]
	switch ids, read := e.packages[key.digest]; {
	case ok && state == registry.ImageNone:
		return ""
	case !ok || state != registry.ImageIndexed || !read:
		if r.RefuseUnknown {
			return "it is not known what is in the image"
		}
		return ""
	case r.RefuseUnknown && slices.ContainsFunc(ids, func(id int64) bool { return e.unmatched[id] }):
		return "the image was not compared with the advisories yet"
	}
	var worst *Finding
	more := 0
	for _, f := range e.findings(key, r) {
		refused, begins := refuses(r, f, at)
		if !refused {
			v.bringForward(begins, at)
			continue
		}
		held, ok := e.exceptions.holding(caseOf(f, key.repo, key.digest, e.tags[key]), at,
			func(x vuln.Exception) bool { return x.Home().Covers(r.Home()) })
		if ok {
			v.bringForward(held.ExpireTime, at)
			v.bringForward(held.DeleteTime, at)
			continue
		}
		if more++; worst == nil || worst.key() < f.key() {
			worst = &f
		}
	}
	if worst == nil {
		return ""
	}
	return explain(*worst, more-1)
}

// bringForward notes that a verdict may change at a time, unless that is over or zero.
func (v *verdict) bringForward(t, now time.Time) {
	if t.After(now) && (v.until.IsZero() || t.Before(v.until)) {
		v.until = t
	}
}

// findings returns the findings of an image that count for a rule.
func (e grounds) findings(key imageKey, r vuln.PullRule) (all []Finding) {
	counts := func(group resource.UID) bool { return r.Home().Covers(group) && group.Covers(key.repo) }
	for _, id := range e.packages[key.digest] {
		var of []findingdb.Hit
		for _, h := range e.hits[id] {
			a, ok := e.advisories[h.Advisory]
			if ok && counts(a.UID.Parent()) {
				of = append(of, h)
			}
		}
		for _, same := range together(of, e.advisories) {
			v := newFinding(registry.ImagePackage{Package: e.known[id]}, same, e.advisories)
			for group, known := range e.exploited {
				v.Known = v.Known || counts(group) && slices.ContainsFunc(v.cves(), func(c vuln.CVE) bool { return known[c] })
			}
			all = append(all, v)
		}
	}
	return all
}

// explain names a finding and how to fix it, and how many more there are.
func explain(v Finding, more int) string {
	name := v.ID
	for _, alias := range v.Aliases {
		if strings.HasPrefix(alias, "CVE-") && !strings.HasPrefix(name, "CVE-") {
			name = alias
		}
	}
	severity := []string{"unknown severity", "low", "medium", "high", "critical"}[v.Severity]
	text := fmt.Sprintf("%s in %s %s (%s)", name, v.Package.Name, v.Package.Version, severity)
	if len(v.Fixed) > 0 {
		text += ", fixed in " + strings.Join(v.Fixed[:min(len(v.Fixed), 3)], " and ")
	} else {
		text += ", not fixed yet"
	}
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
