package policy

import (
	"cmp"
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

// A verdict is the decision of several rules about an image.
type verdict struct {
	rules       *findingdb.RuleSet
	reasons     map[resource.UID]string // reason why a rule refuses the image, by the UID of the rule
	unsigned    bool                    // whether a rule refuses the image because it is not signed
	unrated     bool                    // whether a finding passes a rule only because its severity is unknown
	from, until time.Time               // period of validity; until is zero if the verdict does not expire
}

// A judge applies rules to images.
type judge struct {
	packages   *findingdb.Store
	images     *imagedb.Store
	advisories *advisorydb.Store
	contents   Contents
}

// refuses reports whether a rule refuses a finding at a time, and from what time on it does. It ignores exceptions. All
// other conditions that a rule has for findings are in this function.
func refuses(r vuln.PullRule, v finding.Finding, asOf time.Time) (refused bool, begins time.Time) {
	tooLow := v.Severity != finding.SeverityUnknown && int32(v.Severity) < r.MinSeverity
	if tooLow || passesUnrated(r, v) || r.Fixable && len(v.Fixed) == 0 || r.KEV && !v.Known {
		return false, time.Time{}
	}
	begins = v.FirstSeen.AddDate(0, 0, int(r.GraceDays))
	return !asOf.Before(begins), begins
}

// passesUnrated reports whether a finding passes a rule because its severity is unknown.
func passesUnrated(r vuln.PullRule, v finding.Finding) bool {
	return v.Severity == finding.SeverityUnknown && !r.RefusesUnknownSeverity()
}

// evidence is the data by which rules judge several images.
type evidence struct {
	states     map[finding.ImageKey]registry.ImageState
	packages   map[string][]int64 // IDs of an image's packages, by the image's digest
	unmatched  map[int64]bool
	known      map[int64]registry.Package
	hits       map[int64][]findingdb.Hit // matches by package
	advisories map[int64]vuln.Advisory
	exceptions *exception.Set
	tags       map[finding.ImageKey][]string
	exploited  map[resource.UID]map[vuln.CVE]bool // known exploited CVEs, by the group of the exploit list
	records    finding.Records                    // other records about vulnerabilities that are not rated
	sources    map[resource.UID]bool              // groups of the advisories, exploit lists and records
}

// judgements returns the verdicts of the rules of one organization on images at a time.
func (j judge) judgements(
	ctx context.Context, keys []finding.ImageKey, rules []vuln.PullRule, asOf time.Time,
) (map[finding.ImageKey]verdict, error) {
	var e evidence
	var err error
	if slices.ContainsFunc(rules, func(r vuln.PullRule) bool { return !r.Unsigned }) {
		e, err = j.gather(ctx, keys, asOf)
	}
	if err == nil && slices.ContainsFunc(rules, func(r vuln.PullRule) bool { return r.KEV }) {
		err = j.addExploited(ctx, keys, &e)
	}
	if err != nil {
		return nil, err
	}
	if err := j.addRecords(ctx, keys, &e); err != nil {
		return nil, err
	}
	e.addSources()
	verdicts := map[finding.ImageKey]verdict{}
	for _, key := range keys {
		v := verdict{reasons: map[resource.UID]string{}}
		if e.exceptions != nil {
			v.validUntil(e.exceptions.NextStart(asOf), asOf)
		}
		for _, r := range rules {
			switch {
			case !r.Target.Covers(key.Repo):
			case r.Unsigned:
				if err := j.judgeSigned(ctx, key, r, &v); err != nil {
					return nil, err
				}
			default:
				v.reasons[r.UID] = e.judge(key, r, asOf, &v)
			}
		}
		verdicts[key] = v
	}
	return verdicts, nil
}

// judgeSigned adds a reason to a verdict if a rule refuses an image because it has no trusted signature. As with
// exceptions, only signers in the group of the rule or above it count, so that nobody below can lift the rule.
func (j judge) judgeSigned(ctx context.Context, key finding.ImageKey, r vuln.PullRule, v *verdict) error {
	signer, why, err := j.contents.SignedBy(ctx, key.Repo, key.Digest, r.Home())
	if errors.Is(err, fault.NotFound) {
		why, err = "it was deleted a moment ago", nil
	}
	v.reasons[r.UID] = ""
	if signer == "" && why != "" {
		v.reasons[r.UID], v.unsigned = why, true
	}
	return err
}

// gather reads the data that is needed to judge images.
func (j judge) gather(ctx context.Context, keys []finding.ImageKey, asOf time.Time) (e evidence, err error) {
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
	if e.exceptions, err = exception.Read(ctx, j.packages, repos, asOf, asOf.Add(verdictLife)); err != nil {
		return e, err
	}
	e.states, e.tags = map[finding.ImageKey]registry.ImageState{}, map[finding.ImageKey][]string{}
	for repo, digestsOfRepo := range byRepo {
		states, err := j.images.ImageStates(ctx, repo, digestsOfRepo)
		if err != nil {
			return e, err
		}
		for d, state := range states {
			e.states[finding.ImageKey{Repo: repo, Digest: d}] = state
		}
		if !e.exceptions.UsesTags() {
			continue
		}
		tags, err := j.images.TagsOf(ctx, repo, digestsOfRepo)
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

// matches reads the matches of the packages with advisories of the organizations that contain repos.
func (j judge) matches(ctx context.Context, repos []resource.UID, e *evidence) error {
	var ids []int64
	for _, numbers := range e.packages {
		ids = append(ids, numbers...)
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

// addExploited reads which CVEs of the advisories are in the exploit lists of the images' organizations.
func (j judge) addExploited(ctx context.Context, keys []finding.ImageKey, e *evidence) (err error) {
	var repos []resource.UID
	for _, k := range keys {
		repos = append(repos, k.Repo)
	}
	var cves []vuln.CVE
	for _, a := range e.advisories {
		for _, names := range a.Vulnerabilities() {
			cves = append(cves, finding.CVEs(names)...)
		}
	}
	e.exploited, err = j.advisories.KnownExploited(ctx, finding.Organizations(repos), cves)
	return err
}

// addRecords reads other records about vulnerabilities that no advisory about their packages rates.
func (j judge) addRecords(ctx context.Context, keys []finding.ImageKey, e *evidence) (err error) {
	var repos []resource.UID
	for _, k := range keys {
		repos = append(repos, k.Repo)
	}
	var names []string
	for id, hits := range e.hits {
		for _, h := range hits {
			if finding.Rank(e.known[id].Ecosystem, h.Rating) > 0 {
				continue
			}
			for _, called := range e.advisories[h.Advisory].Vulnerabilities() {
				names = append(names, called...)
			}
		}
	}
	e.records, err = finding.ReadRecords(ctx, j.advisories, finding.Organizations(repos), names)
	return err
}

// judge returns why a rule refuses an image, or "" if it does not. It shortens the validity of v to the time at which
// the result may change.
func (e evidence) judge(key finding.ImageKey, r vuln.PullRule, asOf time.Time, v *verdict) string {
	state, ok := e.states[key]
	switch ids, read := e.packages[key.Digest]; {
	case ok && state == registry.ImageNone:
		return ""
	case !ok || state != registry.ImageIndexed || !read:
		if r.RefuseUnknown {
			return "the packages of the image are not known"
		}
		return ""
	case r.RefuseUnknown && slices.ContainsFunc(ids, func(id int64) bool { return e.unmatched[id] }):
		return "the image was not compared with the advisories yet"
	}
	refused := e.refused(key, r, asOf, v)
	if len(refused) == 0 {
		return ""
	}
	worst := slices.MaxFunc(refused, func(a, b finding.Finding) int { return cmp.Compare(a.Key(), b.Key()) })
	evidence := map[resource.UID]vuln.Advisory{}
	for _, uid := range worst.Advisories {
		evidence[uid] = e.advisories[store.Segment(uid)]
	}
	worst.Describe(evidence)
	return explain(worst, len(refused)-1)
}

// refused returns the findings that make a rule refuse an image, each once. The rule is applied to several sets of
// findings. The first set uses the advisories in the rule's group and above. There is a further set for each group on
// the way to the repo, which uses the advisories in that group and above. So an author in a folder cannot weaken what
// the advisories above say, neither by a lower rating nor by joining two vulnerabilities.
func (e evidence) refused(
	key finding.ImageKey, r vuln.PullRule, asOf time.Time, v *verdict,
) (refused []finding.Finding) {
	type name struct {
		pkg  registry.Package
		name string
	}
	counted := map[name]bool{}
	views := e.views(key.Repo, r.Home())
	for i, view := range views {
		for _, f := range e.findings(key, view) {
			if i == len(views)-1 {
				v.noteUnrated(r, f, asOf)
			}
			if !e.refusesFinding(key, r, f, asOf, v) {
				continue
			}
			seen := false
			for _, n := range f.Names() {
				seen = seen || counted[name{f.Package.Package, n}]
				counted[name{f.Package.Package, n}] = true
			}
			if !seen {
				refused = append(refused, f)
			}
		}
	}
	return refused
}

// refusesFinding reports whether a rule refuses an image because of a finding for which no exception holds.
func (e evidence) refusesFinding(
	key finding.ImageKey, r vuln.PullRule, f finding.Finding, asOf time.Time, v *verdict,
) bool {
	refused, begins := refuses(r, f, asOf)
	if !refused {
		v.validUntil(begins, asOf)
		return false
	}
	held, ok := e.exceptions.Holding(exception.CaseOf(f, key.Repo, key.Digest, e.tags[key]), asOf,
		func(x vuln.Exception) bool { return x.Home().Covers(r.Home()) })
	if ok {
		v.validUntil(held.ExpireTime, asOf)
		v.validUntil(held.DeleteTime, asOf)
	}
	return !ok
}

// noteUnrated records that a finding passes a rule only because its severity is unknown.
func (v *verdict) noteUnrated(r vuln.PullRule, f finding.Finding, asOf time.Time) {
	if passesUnrated(r, f) && !v.unrated {
		f.Severity = finding.SeverityCritical
		v.unrated, _ = refuses(r, f, asOf)
	}
}

// views returns home, and each group between home and repo that has advisories, records or catalogs of its own.
func (e evidence) views(repo, home resource.UID) []resource.UID {
	views := []resource.UID{home}
	for _, g := range repo.Ancestors() {
		if g != home && home.Covers(g) && e.sources[g] {
			views = append(views, g)
		}
	}
	return views
}

// addSources sets the groups whose data the evidence contains.
func (e *evidence) addSources() {
	e.sources = map[resource.UID]bool{}
	for _, a := range e.advisories {
		e.sources[a.UID.Parent()] = true
	}
	for _, records := range e.records {
		for _, a := range records {
			e.sources[a.UID.Parent()] = true
		}
	}
	for group := range e.exploited {
		e.sources[group] = true
	}
}

// validUntil shortens the validity of a verdict to end at t, unless t is zero or not after asOf.
func (v *verdict) validUntil(t, asOf time.Time) {
	if t.After(asOf) && (v.until.IsZero() || t.Before(v.until)) {
		v.until = t
	}
}

// findings returns the findings of an image by the advisories and catalogs of a group that contains the repo, and of
// the groups above it. So advisories of the organization also count for a rule of a folder. Nobody in another folder
// can stop a pull.
func (e evidence) findings(key finding.ImageKey, view resource.UID) (found []finding.Finding) {
	counts := func(group resource.UID) bool { return group.Covers(view) }
	for _, id := range e.packages[key.Digest] {
		var counted []findingdb.Hit
		for _, h := range e.hits[id] {
			a, ok := e.advisories[h.Advisory]
			if ok && counts(a.UID.Parent()) {
				counted = append(counted, h)
			}
		}
		for _, mentions := range finding.ByVulnerability(counted, e.advisories) {
			v := finding.New(registry.ImagePackage{Package: e.known[id]}, mentions, e.advisories)
			for group, known := range e.exploited {
				v.Known = v.Known || counts(group) && slices.ContainsFunc(v.CVEs(), func(c vuln.CVE) bool { return known[c] })
			}
			if v.RateAs(view); v.Unrated() {
				e.records.Complete(&v)
			}
			found = append(found, v)
		}
	}
	return found
}

// explain returns a text with the name, the severity, the source of the severity and the fix of a finding, and the
// number of further findings.
func explain(v finding.Finding, further int) string {
	severity := []string{"unknown severity", "low", "medium", "high", "critical"}[v.Severity]
	if v.SeveritySource != "" {
		severity += " by " + v.SeveritySource
	}
	text := fmt.Sprintf("%s in %s %s (%s)", v.ID, v.Package.Name, v.Package.Version, severity)
	if fixed := cmp.Or(v.FixedVersion, strings.Join(v.Fixed[:min(len(v.Fixed), 3)], " or ")); fixed != "" {
		text += ", fixed in " + fixed
	} else {
		text += ", not fixed yet"
	}
	if further > 0 {
		text += fmt.Sprintf("; and %d more", further)
	}
	return text
}
