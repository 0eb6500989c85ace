package query_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// vectors are CVSS vectors with the severities medium, high and critical.
var vectors = []string{"CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:U/C:L/I:L/A:N", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N",
	"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}

// severityOf returns the severity and the CVSS vector that advisories with an ID have in this test.
func severityOf(id string) (finding.Severity, string) {
	n := int(id[len(id)-1]) % 4
	if n == 3 {
		return finding.SeverityUnknown, ""
	}
	return finding.SeverityMedium + finding.Severity(n), vectors[n]
}

// A trueHit is an advisory that affects a package of a tagged image.
type trueHit struct {
	repo        resource.UID
	tag, digest string
	pkg         inspect.Package
	advisory    resource.UID
	id          string
	names       []string
	fixable     bool
}

// A step is the state after one action, until the next action.
type step struct {
	time  time.Time
	moved string // repo and tag that the action moved to another image, or ""
	to    string // digest of that image
	hits  []trueHit
}

// A tagGame is a game in which tags are moved and time passes.
type tagGame struct {
	*game
	now     time.Time
	tags    map[resource.UID]map[string]string
	indexes map[string][]string // digests of the images that each index lists, by the digest of the index
	steps   []step
	made    decisions

	// opened, if it is not nil, is called for each finding of a tag that is open now, with the hits that are open.
	opened func(hits []trueHit, severity finding.Severity, since time.Time)
}

func newTagGame(t *testing.T, url string) *tagGame {
	t.Helper()
	g := &tagGame{game: newGame(t, url), now: time.Now().UTC().Truncate(24 * time.Hour).Add(time.Hour),
		tags: map[resource.UID]map[string]string{}, indexes: map[string][]string{}, made: decisions{}}
	for _, r := range g.replicas {
		r.Now = func() time.Time { return g.now }
	}
	return g
}

// play performs random actions, and records the state after each.
func (g *tagGame) play(t *testing.T, actions int) {
	t.Helper()
	for range actions {
		g.now = g.now.Add(time.Duration(1+g.rng.IntN(20)) * 7 * time.Hour / 4)
		moved, to := g.do(t)
		g.settle(t)
		g.steps = append(g.steps, step{g.now, moved, to, g.trueHits()})
	}
}

// TestGroupFindings performs random pushes, tag moves, deletions, attachments, imports, retractions and exceptions. It
// checks that each caller gets exactly the findings that follow from the tagged images and the advisories that the
// caller may see, for each group, now and over time.
func TestGroupFindings(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newTagGame(t, url)
		g.play(t, *rounds*20)
		for name, caller := range g.callers {
			ctx := authz.WithCaller(t.Context(), caller)
			places := append([]resource.UID{""}, g.groups...)
			places = append(places, slices.Collect(maps.Keys(g.repos))...)
			for _, place := range places {
				g.checkGroup(ctx, t, name, place)
				g.checkSummary(ctx, t, name, place)
			}
		}
	})
}

// do performs one random action. If it moved a tag to another image, do returns the tag
// and the digest of the image.
func (g *tagGame) do(t *testing.T) (moved, to string) {
	t.Helper()
	repos := slices.Sorted(maps.Keys(g.repos))
	n := g.rng.IntN(18)
	if len(repos) == 0 || n < 3 {
		return g.pushTag(t)
	}
	repo := repos[g.rng.IntN(len(repos))]
	images := slices.Sorted(maps.Keys(g.repos[repo]))
	names := slices.Sorted(maps.Keys(g.tags[repo]))
	switch {
	case n < 6 && len(images) > 0:
		return g.move(t, repo, []string{"latest", "stable"}[g.rng.IntN(2)], images[g.rng.IntN(len(images))])
	case n == 6 && len(images) > 0:
		return g.move(t, repo, "latest", g.pushIndex(t, repo, images))
	case n <= 8 && len(names) > 0 && g.rng.IntN(3) > 0:
		// Most of the chosen tags are tags with which images were pushed, because these are last.
		name := names[len(names)-1-g.rng.IntN(len(names))/2]
		must(t, g.DeleteTagNamed(t.Context(), repo, name, nil))
		delete(g.tags[repo], name)
	case n == 8 && len(images) > 0:
		g.deleteImage(t, repo, images[0])
	case n == 9 && g.rng.IntN(6) == 0:
		must(t, g.DeleteRepo(t.Context(), repo))
		delete(g.repos, repo)
		delete(g.named, repo)
		delete(g.tags, repo)
	case n == 10 || n == 9:
		g.retractAny(t)
	case n >= 14 && n < 17:
		g.except(t)
	case n == 17 && len(images) > 0:
		g.attachSBOM(t, repo, images[g.rng.IntN(len(images))])
	default:
		g.importRated(t)
	}
	return "", ""
}

// except creates exceptions and deletes exceptions. Some exceptions last for days.
func (g *tagGame) except(t *testing.T) {
	t.Helper()
	for _, uid := range slices.Sorted(maps.Keys(g.made)) {
		if e := g.made[uid]; e.DeleteTime.IsZero() && g.rng.IntN(8) == 0 {
			must(t, g.DeleteException(t.Context(), uid, ""))
			e.DeleteTime = g.now
			g.made[uid] = e
			return
		}
	}
	for range 6 { // several, because most of them match no finding
		g.made.makeOne(t, g.game, g.now, 10*24*time.Hour)
	}
}

// attachSBOM attaches an SBOM to an image. The test never detaches an SBOM, because the history of a detached SBOM is
// not stored.
func (g *tagGame) attachSBOM(t *testing.T, repo resource.UID, image string) {
	t.Helper()
	a := attachment{word: fmt.Sprintf("s%d", g.rng.IntN(9)), by: resource.NewRoot()}
	a.digest = g.attach(t, g.named[repo], a, image, a.word)
	if g.attached[repo] == nil {
		g.attached[repo] = map[string][]attachment{}
	}
	g.attached[repo][image] = append([]attachment{a}, g.attached[repo][image]...)
}

func (g *tagGame) pushTag(t *testing.T) (moved, to string) {
	t.Helper()
	before := map[resource.UID]map[string]string{}
	for repo, images := range g.repos {
		before[repo] = maps.Clone(images)
	}
	g.pushOne(t)
	for repo, images := range g.repos {
		if g.tags[repo] == nil {
			g.tags[repo] = map[string]string{}
		}
		for d, word := range images {
			if before[repo][d] == "" {
				g.tags[repo]["v-"+word] = d
				return string(repo) + " v-" + word, d
			}
		}
	}
	// The image already existed, but the push has restored its tag if the tag was deleted or moved.
	for repo, images := range g.repos {
		for d, word := range images {
			tag, err := g.TagNamed(t.Context(), repo, "v-"+word)
			if err == nil && tag.Digest == d && g.tags[repo]["v-"+word] != d {
				g.tags[repo]["v-"+word] = d
				return string(repo) + " v-" + word, d
			}
		}
	}
	return "", ""
}

func (g *tagGame) move(t *testing.T, repo resource.UID, name, to string) (string, string) {
	t.Helper()
	_, err := g.PutTag(t.Context(), registry.Tag{UID: repo.NewChild(), Name: name, Digest: to}, nil)
	must(t, err)
	if g.tags[repo][name] == to {
		return "", ""
	}
	g.tags[repo][name] = to
	return string(repo) + " " + name, to
}

// pushIndex pushes an index that lists one or two images, and returns its digest.
func (g *tagGame) pushIndex(t *testing.T, repo resource.UID, images []string) string {
	t.Helper()
	digests := slices.Compact([]string{images[0], images[g.rng.IntN(len(images))]})
	var listed []any
	for _, d := range digests {
		listed = append(listed, map[string]any{"mediaType": registry.ImageManifests[0], "digest": d, "size": 1})
	}
	body, err := json.Marshal(map[string]any{"manifests": listed})
	must(t, err)
	m := registry.Manifest{Digest: digest(string(body)), MediaType: "application/vnd.oci.image.index.v1+json",
		Size: int64(len(body)), Body: body}
	for _, d := range digests {
		m.Needs = append(m.Needs, registry.Need{Digest: d, Manifest: true})
	}
	ref := registrydb.RepoRef{Group: repo.Parent(), Name: g.named[repo].Name}
	_, err = g.PutManifest(t.Context(), ref, m, nil)
	must(t, err)
	g.indexes[m.Digest] = digests
	return m.Digest
}

// deleteImage deletes an image, unless an index lists it.
func (g *tagGame) deleteImage(t *testing.T, repo resource.UID, d string) {
	t.Helper()
	err := g.DeleteManifest(t.Context(), repo, d, nil)
	if errors.Is(err, fault.FailedPrecondition) {
		return
	}
	must(t, err)
	delete(g.repos[repo], d)
	maps.DeleteFunc(g.tags[repo], func(_, target string) bool { return target == d })
	for i := range g.steps { // the history of a deleted image is gone, even if the image is pushed again
		s := &g.steps[i]
		s.hits = slices.DeleteFunc(s.hits, func(h trueHit) bool { return h.repo == repo && h.digest == d })
		if s.to == d && strings.HasPrefix(s.moved, string(repo)+" ") {
			s.to = ""
		}
	}
}

// importRated imports an advisory that may have a severity and a fix.
func (g *tagGame) importRated(t *testing.T) {
	t.Helper()
	group := g.groups[g.rng.IntN(len(g.groups))]
	id := fmt.Sprintf("%s-%d", []string{"CVE", "GHSA", "GO"}[g.rng.IntN(3)], g.rng.IntN(6))
	a := vuln.Advisory{ID: id, Affected: []vuln.Affected{{Ecosystem: []string{"npm", "Debian:12"}[g.rng.IntN(2)],
		Name: fmt.Sprintf("p%d", g.rng.IntN(6)), Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM",
			Events: []vuln.RangeEvent{{Introduced: fmt.Sprintf("1.%d.0", g.rng.IntN(3))}}}}}}}
	if g.rng.IntN(3) > 0 {
		r := &a.Affected[0].Ranges[0]
		r.Events = append(r.Events, vuln.RangeEvent{Fixed: fmt.Sprintf("1.%d.0", 3+g.rng.IntN(2))})
	}
	// An advisory has the same alias in every import. If the alias changed, the advisory could connect two other
	// advisories at times at which it affects no package of the tag. See setsOf.
	if n := int(id[len(id)-1] - '0'); id[0] != 'C' && n%2 == 0 {
		a.Aliases = []string{fmt.Sprintf("CVE-%d", n/2)}
	}
	if _, vector := severityOf(id); vector != "" {
		a.Severities = []vuln.Severity{{Type: vuln.CVSSv3, Score: vector}}
	}
	a.Source.Digest = []byte(rand.Text())
	_, err := g.ImportAdvisories(t.Context(), group, "test", []vuln.Advisory{a})
	must(t, err)
	g.relearn(t, group, id)
}

// retractAny deletes a random advisory.
func (g *tagGame) retractAny(t *testing.T) {
	t.Helper()
	if uids := slices.Sorted(maps.Keys(g.advisories)); len(uids) > 0 {
		uid := uids[g.rng.IntN(len(uids))]
		must(t, g.DeleteAdvisory(t.Context(), uid))
		delete(g.advisories, uid)
	}
}

// ratedAffects is like affects, for advisories that may have no fix.
func ratedAffects(a vuln.Advisory, p inspect.Package) bool {
	events := a.Affected[0].Ranges[0].Events
	if len(events) == 1 {
		a.Affected = []vuln.Affected{a.Affected[0]}
		a.Affected[0].Ranges = []vuln.AffectedRange{{Events: []vuln.RangeEvent{events[0], {Fixed: "9"}}}}
	}
	return affects(a, p)
}

// trueHits returns all advisories that affect packages of tagged images, according to the model.
func (g *tagGame) trueHits() (hits []trueHit) {
	for repo, tags := range g.tags {
		for tag, d := range tags {
			imageDigests := g.indexes[d]
			if imageDigests == nil {
				imageDigests = []string{d}
			}
			for _, image := range imageDigests {
				for _, p := range g.has(repo, image, g.repos[repo][image]) {
					for uid, a := range g.advisories {
						if ratedAffects(a, p) {
							hits = append(hits, trueHit{repo: repo, tag: tag, digest: image, pkg: p, advisory: uid, id: a.ID,
								names: append([]string{a.ID}, a.Aliases...), fixable: len(a.Affected[0].Ranges[0].Events) > 1})
						}
					}
				}
			}
		}
	}
	return hits
}

// within returns those hits that a caller may see in a place. It omits hits of deleted images.
func (g *tagGame) within(hits []trueHit, name string, place resource.UID) []trueHit {
	return slices.DeleteFunc(slices.Clone(hits), func(h trueHit) bool {
		return !covered(g.sees[name], h.repo) || !covered(g.sees[name], h.advisory) || place != "" && !place.Covers(h.repo) ||
			g.repos[h.repo][h.digest] == ""
	})
}

// unite maps each name to the smallest of the names to which it is connected.
func unite(hits []trueHit) map[string]string {
	least := map[string]string{}
	for changed := true; changed; {
		changed = false
		for _, h := range hits {
			low := h.names[0]
			for _, n := range h.names {
				low = min(low, cmp.Or(least[n], n))
			}
			for _, n := range h.names {
				if least[n] != low {
					least[n], changed = low, true
				}
			}
		}
	}
	return least
}

func (g *tagGame) checkGroup(ctx context.Context, t *testing.T, name string, place resource.UID) {
	t.Helper()
	hits := g.within(g.steps[len(g.steps)-1].hits, name, place)
	byPackage := map[string][]trueHit{}
	for _, h := range hits {
		byPackage[h.pkg.Purl] = append(byPackage[h.pkg.Purl], h)
	}
	var want []string
	for purl, found := range byPackage {
		sets := unite(found)
		rows := map[string][]trueHit{}
		for _, h := range found {
			rows[sets[h.id]] = append(rows[sets[h.id]], h)
		}
		for _, aliases := range rows {
			images, advisories := map[string]bool{}, map[string]bool{}
			severity := finding.SeverityUnknown
			for _, h := range aliases {
				images[string(h.repo)+h.digest], advisories[string(h.advisory)] = true, true
				s, _ := severityOf(h.id)
				severity = max(severity, s)
			}
			want = append(want, fmt.Sprint(purl, " ", slices.Sorted(maps.Keys(advisories)), " ", len(images), " ", severity))
		}
	}
	r := g.replicas[g.rng.IntN(len(g.replicas))]
	var covers query.AnswerCoverage
	found, err := readAll(func(p page.Params) (out page.Page[query.GroupFinding], err error) {
		out, covers, err = r.service.ListGroup(ctx, query.Place{Group: place}, query.Filter{}, p)
		return out, err
	})
	must(t, err)
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprint(f.Package.PURL, " ", f.Advisories, " ", f.Images, " ", f.Severity))
		if len(f.SomeImages) != min(f.Images, 5) {
			t.Errorf("%d of %d images are shown", len(f.SomeImages), f.Images)
		}
		for _, i := range f.SomeImages {
			if g.repos[i.Repo][i.Digest] == "" || len(i.Tags) == 0 || !covered(g.sees[name], i.Repo) {
				t.Errorf("%s is shown %+v", name, i)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s lists the findings of %q: %s", name, place, diff)
	}
	g.checkCoverage(t, name, place, covers)
}

// checkCoverage checks that the coverage counts every tagged image and every package.
func (g *tagGame) checkCoverage(t *testing.T, name string, place resource.UID, got query.AnswerCoverage) {
	t.Helper()
	images, packages := map[string]bool{}, map[string]bool{}
	for repo, tags := range g.tags {
		if !covered(g.sees[name], repo) || place != "" && !place.Covers(repo) {
			continue
		}
		for _, d := range tags {
			imageDigests := g.indexes[d]
			if imageDigests == nil {
				imageDigests = []string{d}
			}
			for _, image := range imageDigests {
				images[string(repo)+image] = true
				for _, p := range g.has(repo, image, g.repos[repo][image]) {
					packages[p.Purl+p.Owner] = true
				}
			}
		}
	}
	c := got.Packages
	if got.Images != len(images) || got.Indexed != len(images) || c.Packages != len(packages) ||
		c.Covered+c.Bare+c.Owned != c.Packages || c.Waiting != 0 {
		t.Fatalf("%s gets %+v for %q, want %d images and %d packages", name, got, place, len(images), len(packages))
	}
}

// A trueCount contains the expected counts of a summary.
type trueCount struct {
	Now      query.BySeverity
	Excepted int
	Fixable  int
	Ages     [4]int
	Oldest   time.Time
	Fixed    int
	Took     time.Duration
}

func (g *tagGame) checkSummary(ctx context.Context, t *testing.T, name string, place resource.UID) {
	t.Helper()
	total, rows := trueCount{}, map[string]trueCount{}
	days := 60
	series := make([]query.BySeverity, days)
	for repo, tags := range g.everTagged() {
		for tag := range tags {
			g.playTag(name, place, repo, tag, series, func(add func(*trueCount)) {
				add(&total)
				row := rows[g.rowOf(place, repo, tag)]
				add(&row)
				rows[g.rowOf(place, repo, tag)] = row
			})
		}
	}
	r := g.replicas[g.rng.IntN(len(g.replicas))]
	var sum query.Summary
	found, err := readAll(func(p page.Params) (out page.Page[query.SummaryRow], err error) {
		out, sum, err = r.service.Summarize(ctx, query.Place{Group: place}, days, p)
		return out, err
	})
	must(t, err)
	what := fmt.Sprintf("the summary of %q for %s", place, name)
	if diff := gocmp.Diff(total, countOf(sum.Total)); diff != "" {
		t.Fatalf("%s: total: %s", what, diff)
	}
	got := map[string]trueCount{}
	for _, row := range found {
		key := string(row.UID)
		if row.Tag {
			key += " " + row.Name
		}
		if c := countOf(row.Count); c != (trueCount{}) {
			got[key] = c
		}
		if row.Name == "" {
			t.Errorf("%s: a row has no name: %+v", what, row)
		}
	}
	maps.DeleteFunc(rows, func(key string, c trueCount) bool {
		repo, tag, ok := strings.Cut(key, " ")
		return c == trueCount{} || ok && g.tags[resource.UID(repo)][tag] == "" // a deleted tag has no row
	})
	if diff := gocmp.Diff(rows, got); diff != "" {
		t.Fatalf("%s: rows: %s", what, diff)
	}
	var points []query.BySeverity
	for _, p := range sum.Series {
		points = append(points, p.Open)
	}
	if diff := gocmp.Diff(series, points); diff != "" {
		t.Fatalf("%s: series: %s", what, diff)
	}
}

func countOf(c query.Counts) trueCount {
	return trueCount{c.Now, c.Excepted, c.Fixable, c.Ages, c.Oldest.Since, c.Fixed, c.FixedTime}
}

func (g *tagGame) rowOf(place, repo resource.UID, tag string) string {
	if place == repo {
		return string(repo) + " " + tag
	}
	return string(repo.Ancestor(place.Depth() + 1))
}

// everTagged returns all tags of repos that still exist, including deleted tags.
func (g *tagGame) everTagged() map[resource.UID]map[string]bool {
	tagged := map[resource.UID]map[string]bool{}
	for _, s := range g.steps {
		for _, h := range s.hits {
			if g.repos[h.repo] == nil {
				continue
			}
			if tagged[h.repo] == nil {
				tagged[h.repo] = map[string]bool{}
			}
			tagged[h.repo][h.tag] = true
		}
	}
	return tagged
}

// playTag goes through the steps and counts the findings of a tag.
func (g *tagGame) playTag(
	name string, place, repo resource.UID, tag string, series []query.BySeverity, count func(func(*trueCount)),
) {
	perStep := make([][]trueHit, len(g.steps))
	byName := map[string][]trueHit{}
	for i, s := range g.steps {
		for _, h := range g.within(s.hits, name, place) {
			if h.repo == repo && h.tag == tag {
				perStep[i] = append(perStep[i], h)
				pkg := packageName(h.pkg)
				byName[pkg] = append(byName[pkg], h)
			}
		}
	}
	for pkg, hits := range byName {
		sets := unite(hits)
		for _, id := range slices.Compact(slices.Sorted(maps.Values(sets))) {
			opened := time.Time{}
			for i, s := range g.steps {
				var aliases []trueHit
				for _, h := range perStep[i] {
					if packageName(h.pkg) == pkg && sets[h.id] == id {
						aliases = append(aliases, h)
					}
				}
				open := len(aliases) > 0
				g.addToSeries(series, i, aliases, perStep[i])
				switch {
				case open && opened.IsZero():
					opened = s.time
				case !open && !opened.IsZero():
					if s.moved == string(repo)+" "+tag && g.isThere(repo, s.to) {
						took := s.time.Sub(opened)
						count(func(c *trueCount) { c.Fixed++; c.Took += took })
					}
					opened = time.Time{}
				}
				if !open || i != len(g.steps)-1 {
					continue
				}
				if left := g.notExcepted(i, aliases, perStep[i], g.now); len(left) > 0 {
					severity, fixable := rating(left)
					if g.opened != nil {
						g.opened(left, severity, opened)
					}
					count(func(c *trueCount) { c.open(severity, fixable, opened, g.now) })
				} else {
					count(func(c *trueCount) { c.Excepted++ })
				}
			}
		}
	}
}

// rating returns the highest severity of hits, and whether one of them has a fix.
func rating(hits []trueHit) (severity finding.Severity, fixable bool) {
	for _, h := range hits {
		rated, _ := severityOf(h.id)
		severity, fixable = max(severity, rated), fixable || h.fixable
	}
	return severity, fixable
}

// notExcepted returns those hits of a tag after step i to which no exception applies at a time. An exception applies to
// a finding in one version of a package in one image. So notExcepted uses among, which contains all hits of the tag, to
// decide which hits are one finding.
func (g *tagGame) notExcepted(i int, hits, among []trueHit, asOf time.Time) []trueHit {
	return slices.DeleteFunc(slices.Clone(hits), func(h trueHit) bool {
		var version []trueHit
		for _, o := range among {
			if o.digest == h.digest && o.pkg.Purl == h.pkg.Purl {
				version = append(version, o)
			}
		}
		sets := unite(version)
		c := trueCase{repo: h.repo, digest: h.digest, pkg: storedPackage(h.pkg), advisories: map[resource.UID][]string{}}
		for _, o := range version {
			if sets[o.id] == sets[h.id] {
				c.advisories[o.advisory] = o.names
			}
		}
		for _, o := range g.steps[i].hits {
			if o.repo == h.repo && o.digest == h.digest && !slices.Contains(c.tags, o.tag) {
				c.tags = append(c.tags, o.tag)
			}
		}
		return g.made.except(c, asOf)
	})
}

func packageName(p inspect.Package) string { return p.Name }

// isThere reports whether an image or index to which a tag was moved still exists.
func (g *tagGame) isThere(repo resource.UID, d string) bool {
	if listed, ok := g.indexes[d]; ok {
		return g.repos[repo][listed[0]] != ""
	}
	return g.repos[repo][d] != ""
}

func (c *trueCount) open(severity finding.Severity, fixable bool, opened, now time.Time) {
	c.Now[severity]++
	if fixable {
		c.Fixable++
	}
	age := now.Sub(opened).Hours() / 24
	switch {
	case age < 7:
		c.Ages[0]++
	case age < 30:
		c.Ages[1]++
	case age < 90:
		c.Ages[2]++
	default:
		c.Ages[3]++
	}
	if c.Oldest.IsZero() || opened.Before(c.Oldest) {
		c.Oldest = opened
	}
}

// addToSeries counts a finding at the end of each day between step i and the next step, unless an exception applied at
// that time.
func (g *tagGame) addToSeries(series []query.BySeverity, i int, hits, among []trueHit) {
	until := g.now.Add(time.Millisecond)
	if i+1 < len(g.steps) {
		until = g.steps[i+1].time
	}
	for n := range series {
		asOf := g.now.Truncate(24 * time.Hour).Add(-time.Duration(len(series)-2-n) * 24 * time.Hour)
		if n == len(series)-1 {
			asOf = g.now
		}
		if asOf.Before(g.steps[i].time) || !asOf.Before(until) {
			continue
		}
		if left := g.notExcepted(i, hits, among, asOf); len(left) > 0 {
			severity, _ := rating(left)
			series[n][severity]++
		}
	}
}
