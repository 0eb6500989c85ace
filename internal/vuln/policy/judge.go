package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A verdict is what rules say about an image.
type verdict struct {
	rules       *findingdb.RuleSet
	reasons     map[resource.UID]string // by rule, why it refuses the image
	unsigned    bool                    // because it is not signed
	from, until time.Time               // when that may be another; until is zero if time alone changes nothing
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
func refuses(r vuln.PullRule, v finding.Finding, at time.Time) (refused bool, begins time.Time) {
	if int32(v.Severity) < r.MinSeverity || r.Fixable && len(v.Fixed) == 0 || r.KEV && !v.Known {
		return false, time.Time{}
	}
	begins = v.FirstSeen.AddDate(0, 0, int(r.GraceDays))
	return !at.Before(begins), begins
}

// grounds is what rules decide by, for several images.
type grounds struct {
	states     map[finding.ImageKey]registry.ImageState
	packages   map[string][]int64 // by digest
	unmatched  map[int64]bool
	known      map[int64]registry.Package
	hits       map[int64][]findingdb.Hit // by package
	advisories map[int64]vuln.Advisory
	exceptions *exception.Set
	tags       map[finding.ImageKey][]string
	exploited  map[resource.UID]map[vuln.CVE]bool // by the group of the catalog
}

// judgements returns what rules of one organization say about images at a time.
func (j judge) judgements(
	ctx context.Context, keys []finding.ImageKey, rules []vuln.PullRule, at time.Time,
) (map[finding.ImageKey]verdict, error) {
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
	all := map[finding.ImageKey]verdict{}
	for _, key := range keys {
		v := verdict{reasons: map[resource.UID]string{}}
		if e.exceptions != nil {
			v.bringForward(e.exceptions.NextStart(at), at)
		}
		for _, r := range rules {
			switch {
			case !r.Target.Covers(key.Repo):
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
func (j judge) judgeSigned(ctx context.Context, key finding.ImageKey, r vuln.PullRule, v *verdict) error {
	signer, why, err := j.signed(ctx, key.Repo, key.Digest, r.Home())
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
func (j judge) gather(ctx context.Context, keys []finding.ImageKey, at time.Time) (e grounds, err error) {
	byRepo := map[resource.UID][]string{}
	var digests []string
	var repos []resource.UID
	for _, k := range keys {
		if byRepo[k.Repo] == nil {
			repos = append(repos, k.Repo)
		}
		byRepo[k.Repo] = append(byRepo[k.Repo], k.Digest)
		digests = append(digests, k.Digest)
	}
	slices.Sort(digests)
	if e.exceptions, err = exception.Read(ctx, j.packages, repos, at, at.Add(verdictLife)); err != nil {
		return e, err
	}
	e.states, e.tags = map[finding.ImageKey]registry.ImageState{}, map[finding.ImageKey][]string{}
	for repo, of := range byRepo {
		states, err := j.images.ImageStates(ctx, repo, of)
		if err != nil {
			return e, err
		}
		for d, state := range states {
			e.states[finding.ImageKey{Repo: repo, Digest: d}] = state
		}
		if !e.exceptions.UsesTags() {
			continue
		}
		tags, err := j.images.TagsOf(ctx, repo, of)
		if err != nil {
			return e, err
		}
		for d, names := range tags {
			e.tags[finding.ImageKey{Repo: repo, Digest: d}] = names
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
	hits, err := j.packages.HitsOf(ctx, slices.Compact(ids), finding.Organizations(repos))
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
func (j judge) addExploited(ctx context.Context, keys []finding.ImageKey, e *grounds) (err error) {
	var repos []resource.UID
	for _, k := range keys {
		repos = append(repos, k.Repo)
	}
	var cves []vuln.CVE
	for _, a := range e.advisories {
		cves = append(cves, finding.CVEs(finding.AdvisoryNames(a))...)
	}
	e.exploited, err = j.advisories.KnownExploited(ctx, finding.Organizations(repos), cves)
	return err
}

// judge returns why a rule refuses an image, or "", and brings forward the time until which
// that holds.
func (e grounds) judge(key finding.ImageKey, r vuln.PullRule, at time.Time, v *verdict) string {
	state, ok := e.states[key]
	switch ids, read := e.packages[key.Digest]; {
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
	var worst *finding.Finding
	more := 0
	for _, f := range e.findings(key, r) {
		refused, begins := refuses(r, f, at)
		if !refused {
			v.bringForward(begins, at)
			continue
		}
		held, ok := e.exceptions.Holding(exception.CaseOf(f, key.Repo, key.Digest, e.tags[key]), at,
			func(x vuln.Exception) bool { return x.Home().Covers(r.Home()) })
		if ok {
			v.bringForward(held.ExpireTime, at)
			v.bringForward(held.DeleteTime, at)
			continue
		}
		if more++; worst == nil || worst.Key() < f.Key() {
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
func (e grounds) findings(key finding.ImageKey, r vuln.PullRule) (all []finding.Finding) {
	counts := func(group resource.UID) bool { return r.Home().Covers(group) && group.Covers(key.Repo) }
	for _, id := range e.packages[key.Digest] {
		var of []findingdb.Hit
		for _, h := range e.hits[id] {
			a, ok := e.advisories[h.Advisory]
			if ok && counts(a.UID.Parent()) {
				of = append(of, h)
			}
		}
		for _, same := range finding.GroupByAlias(of, e.advisories) {
			v := finding.New(registry.ImagePackage{Package: e.known[id]}, same, e.advisories)
			for group, known := range e.exploited {
				v.Known = v.Known || counts(group) && slices.ContainsFunc(v.CVEs(), func(c vuln.CVE) bool { return known[c] })
			}
			all = append(all, v)
		}
	}
	return all
}

// explain names a finding and how to fix it, and how many more there are.
func explain(v finding.Finding, more int) string {
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
