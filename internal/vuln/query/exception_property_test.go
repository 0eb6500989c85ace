package query_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A judgedGame is a game with exceptions and a clock that the test sets.
type judgedGame struct {
	*game
	now  time.Time
	made decisions
}

// decisions contains all exceptions that were ever created, including deleted ones.
type decisions map[resource.UID]vuln.Exception

// TestExceptedFindings creates, approves and deletes exceptions at random, and lets them expire. It checks that a
// finding is excepted exactly if one of all these exceptions applies according to the test's own rules, now and at
// every earlier time.
func TestExceptedFindings(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := &judgedGame{game: newGame(t, url), now: time.Now().UTC().Truncate(time.Second), made: decisions{}}
		for range 120 {
			g.act(t)
		}
		for i := range 6 { // some advisories of a folder share a name with an advisory of the organization
			g.importAs(t, g.groups[0], fmt.Sprintf("TOP-%d", i), nil, i)
			g.importAs(t, g.groups[2], fmt.Sprintf("LOW-%d", i), []string{fmt.Sprintf("TOP-%d", i), "CVE-0"}, i)
		}
		g.settle(t)
		for _, r := range g.replicas {
			r.DB.Now = func() time.Time { return g.now }
		}
		past := []time.Time{g.now}
		for range *rounds {
			for range 60 {
				g.now = g.now.Add(time.Duration(g.rng.IntN(30)) * time.Second)
				past = append(past, g.now)
				g.decide(t)
			}
			for name := range g.callers {
				ctx := authz.WithCaller(t.Context(), g.callers[name])
				g.checkStates(ctx, t, name)
				places := slices.Concat([]resource.UID{""}, g.groups, slices.Sorted(maps.Keys(g.repos)))
				for range 4 {
					g.checkGroupStates(ctx, t, name, places[g.rng.IntN(len(places))])
				}
			}
			g.checkPast(t, past)
		}
	})
}

// importAs imports an advisory about all versions of an npm package.
func (g *judgedGame) importAs(t *testing.T, group resource.UID, id string, aliases []string, number int) {
	t.Helper()
	a := vuln.Advisory{ID: id, Aliases: aliases, Affected: []vuln.Affected{{Ecosystem: "npm",
		Name:   fmt.Sprintf("p%d", number),
		Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "9.0.0"}}}}}}}
	a.Source.Digest = []byte(id)
	_, err := g.ImportAdvisories(t.Context(), group, "test", []vuln.Advisory{a})
	must(t, err)
	found, err := g.Advisories(t.Context(), store.Reach{Under: []resource.UID{group}},
		vuln.AdvisoryFilter{IDs: []string{id}},
		page.Request{Size: 10, Order: page.Order{Field: "uid"}}, true)
	must(t, err)
	for _, v := range found.Items {
		g.advisories[v.UID] = v
	}
}

// decide creates, approves or deletes an exception.
func (g *judgedGame) decide(t *testing.T) {
	t.Helper()
	owner := authz.WithCaller(t.Context(), g.callers["of all"])
	live := slices.DeleteFunc(slices.Sorted(maps.Keys(g.made)),
		func(uid resource.UID) bool { return !g.made[uid].DeleteTime.IsZero() })
	switch n := g.rng.IntN(10); {
	case n < 6 || len(live) == 0:
		g.made.makeOne(t, g.game, g.now, 5*time.Minute)
	case n < 8:
		got, err := g.policy.ApproveException(owner, live[g.rng.IntN(len(live))])
		must(t, err)
		g.made[got.UID] = got.Exception
	default:
		uid := live[g.rng.IntN(len(live))]
		must(t, g.policy.DeleteException(owner, uid))
		gone := g.made[uid]
		gone.DeleteTime = g.now
		g.made[uid] = gone
	}
}

// makeOne creates an exception. If the exception expires, it does so within life.
func (made decisions) makeOne(t *testing.T, g *game, now time.Time, life time.Duration) {
	t.Helper()
	home := g.groups[g.rng.IntN(len(g.groups))]
	e := vuln.Exception{UID: home.NewChild(), Target: home, Reason: "r", CreateTime: now, UpdateTime: now}
	var below []resource.UID
	for uid := range g.repos {
		if home.Covers(uid) {
			below = append(below, uid)
		}
	}
	slices.Sort(below)
	if len(below) > 0 && g.rng.IntN(2) == 0 {
		e.Target = below[g.rng.IntN(len(below))]
		switch images := slices.Sorted(maps.Keys(g.repos[e.Target])); g.rng.IntN(3) {
		case 0:
			e.TagPattern = []string{"v-?0", "v-[a-j]*", "*1", "*"}[g.rng.IntN(4)]
		case 1:
			if len(images) > 0 {
				e.Digest = images[g.rng.IntN(len(images))]
			}
		}
	}
	if g.rng.IntN(3) > 0 {
		e.Advisory = fmt.Sprintf("%s-%d", []string{"CVE", "GHSA", "GO"}[g.rng.IntN(3)], g.rng.IntN(4))
	}
	if e.Advisory == "" || g.rng.IntN(4) == 0 {
		e.PURL = fmt.Sprintf("pkg:%s/p%d", []string{"npm", "deb/debian"}[g.rng.IntN(2)], g.rng.IntN(6))
		if g.rng.IntN(2) == 0 {
			e.PURL += fmt.Sprintf("@1.%d.0", g.rng.IntN(5))
		}
	}
	if g.rng.IntN(2) == 0 {
		e.ExpireTime = now.Add(time.Second + time.Duration(g.rng.Int64N(int64(life))).Truncate(time.Second))
	}
	if g.rng.IntN(3) > 0 {
		e.ApproveTime = now
	}
	must(t, g.InsertExceptions(t.Context(), home, []vuln.Exception{e}))
	made[e.UID] = e
}

// A trueCase is a finding in an image, according to the test's model.
type trueCase struct {
	repo       resource.UID
	digest     string
	tags       []string
	pkg        registry.Package
	advisories map[resource.UID][]string // names of each advisory of the finding, by the advisory's UID
}

// meant is an independent implementation of the rules for exceptions. It reports whether an exception applies at a time
// to a case whose advisory has one of the names.
func meant(e vuln.Exception, c trueCase, names []string, asOf time.Time) bool {
	if e.ApproveTime.IsZero() || asOf.Before(e.ApproveTime) || !e.ExpireTime.IsZero() && !asOf.Before(e.ExpireTime) ||
		!e.DeleteTime.IsZero() && !asOf.Before(e.DeleteTime) {
		return false
	}
	unmatched := slices.ContainsFunc(c.tags, func(tag string) bool { ok, _ := path.Match(e.TagPattern, tag); return !ok })
	if !strings.HasPrefix(string(c.repo)+"/", string(e.Target)+"/") || e.TagPattern != "" &&
		(unmatched || len(c.tags) == 0) || e.Digest != "" && e.Digest != c.digest {
		return false
	}
	if e.Advisory != "" && !slices.Contains(names, e.Advisory) {
		return false
	}
	if e.PURL == "" {
		return true
	}
	rest, npm := strings.CutPrefix(e.PURL, "pkg:npm/")
	if !npm {
		rest = strings.TrimPrefix(e.PURL, "pkg:deb/debian/")
	}
	name, number, _ := strings.Cut(rest, "@")
	is := c.pkg.Name
	if !npm {
		is = c.pkg.SourceName
	}
	return npm == (c.pkg.Ecosystem == "npm") && is == name && (number == "" || number == c.pkg.Version)
}

// claims returns, for each advisory of a finding, the names by which an exception can select it: all names that are
// connected to the advisory through advisories in its group or in a group above.
func (c trueCase) claims() (claims [][]string) {
	for uid, ownNames := range c.advisories {
		names := map[string]bool{ownNames[0]: true}
		for grown := true; grown; {
			grown = false
			for advisory, called := range c.advisories {
				if !advisory.Parent().Covers(uid.Parent()) || advisory != uid &&
					!slices.ContainsFunc(called, func(n string) bool { return names[n] }) {
					continue
				}
				for _, n := range called {
					grown = grown || !names[n]
					names[n] = true
				}
			}
		}
		claims = append(claims, slices.Sorted(maps.Keys(names)))
	}
	return claims
}

// except reports whether an exception applies to every claim of a case at a time.
func (made decisions) except(c trueCase, asOf time.Time) bool {
	for _, names := range c.claims() {
		held := false
		for _, e := range made {
			held = held || meant(e, c, names, asOf)
		}
		if !held {
			return false
		}
	}
	return true
}

// caseOf returns the trueCase for a finding in an image.
func (g *judgedGame) caseOf(p registry.Package, advisories []resource.UID, repo resource.UID, digest string) trueCase {
	c := trueCase{repo: repo, digest: digest, pkg: p, advisories: map[resource.UID][]string{}}
	if tags := g.tagsOf(repo, digest, g.repos[repo][digest]); tags != "" {
		c.tags = strings.Split(tags, ",")
	}
	for _, uid := range advisories {
		c.advisories[uid] = append([]string{g.advisories[uid].ID}, g.advisories[uid].Aliases...)
	}
	return c
}

func (g *judgedGame) excepted(f finding.Finding, repo resource.UID, digest string, asOf time.Time) bool {
	return g.made.except(g.caseOf(f.Package.Package, f.Advisories, repo, digest), asOf)
}

// storedPackage converts a package to the form in which it is stored.
func storedPackage(p inspect.Package) registry.Package {
	k := registry.Package{Ecosystem: "npm", Name: p.Name, Version: p.Version, PURL: p.Purl, SourceName: p.SourceName,
		SourceVersion: p.SourceVersion}
	if p.SourceName != "" {
		k.Ecosystem = "Debian:12"
	}
	return k
}

// groupHits returns the advisories that affect tagged images in a place and that a caller may see. It computes
// them from the model.
func (g *judgedGame) groupHits(name string, place resource.UID) (hits []trueHit) {
	for repo, images := range g.repos {
		if !covered(g.sees[name], repo) || place != "" && !place.Covers(repo) {
			continue
		}
		for d, word := range images {
			if g.tagsOf(repo, d, word) == "" {
				continue
			}
			for _, p := range g.has(repo, d, word) {
				for uid, a := range g.advisories {
					if covered(g.sees[name], uid) && affects(a, p) {
						hits = append(hits, trueHit{repo: repo, digest: d, pkg: p, advisory: uid, id: a.ID,
							names: append([]string{a.ID}, a.Aliases...)})
					}
				}
			}
		}
	}
	return hits
}

// A trueGroupFinding is an expected row in the list of findings of a group.
type trueGroupFinding struct {
	Package          string
	Advisories       []resource.UID
	Images, Excepted int
	State            finding.State
	Files, SBOMs     bool
}

func (f trueGroupFinding) key() string { return fmt.Sprint(f.Package, f.Advisories) }

// expectedGroup returns the rows that a caller should get for a place, according to the model.
func (g *judgedGame) expectedGroup(name string, place resource.UID) (expected []trueGroupFinding) {
	byPackage := map[string][]trueHit{}
	for _, h := range g.groupHits(name, place) {
		byPackage[h.pkg.Purl] = append(byPackage[h.pkg.Purl], h)
	}
	for purl, hits := range byPackage {
		sets := unite(hits)
		rows := map[string][]trueHit{}
		for _, h := range hits {
			rows[sets[h.id]] = append(rows[sets[h.id]], h)
		}
		for _, aliases := range rows {
			f := trueGroupFinding{Package: purl, State: finding.StateExcepted}
			images := map[[2]string]bool{}
			for _, h := range aliases {
				f.Advisories = append(f.Advisories, h.advisory)
				images[[2]string{string(h.repo), h.digest}] = true
			}
			slices.Sort(f.Advisories)
			f.Advisories = slices.Compact(f.Advisories)
			for i := range images {
				repo, d := resource.UID(i[0]), i[1]
				if f.Images++; g.made.except(g.caseOf(storedPackage(aliases[0].pkg), f.Advisories, repo, d), g.now) {
					f.Excepted++
				} else {
					f.State = finding.StateOpen
				}
				lists := func(packages []inspect.Package) bool {
					return slices.ContainsFunc(packages, func(p inspect.Package) bool {
						return nameVersion(p) == nameVersion(aliases[0].pkg)
					})
				}
				f.Files = f.Files || lists(contents(g.repos[repo][d], g.extractors))
				f.SBOMs = f.SBOMs || slices.ContainsFunc(g.attached[repo][d], func(a attachment) bool { return lists(a.claims()) })
			}
			expected = append(expected, f)
		}
	}
	slices.SortFunc(expected, func(a, b trueGroupFinding) int { return strings.Compare(a.key(), b.key()) })
	return expected
}

// checkGroupStates compares the rows that a caller gets for a place with expectedGroup.
func (g *judgedGame) checkGroupStates(ctx context.Context, t *testing.T, name string, place resource.UID) {
	t.Helper()
	r := g.replicas[g.rng.IntN(len(g.replicas))]
	want := g.expectedGroup(name, place)
	states := [][]finding.State{nil, {finding.StateOpen}, {finding.StateExcepted}}[g.rng.IntN(3)]
	found, err := readAll(func(p page.Params) (out page.Page[query.GroupFinding], err error) {
		out, _, err = r.service.ListGroup(ctx, query.Place{Group: place}, query.Filter{States: states}, p)
		return out, err
	})
	must(t, err)
	var got []trueGroupFinding
	for _, f := range found {
		got = append(got, trueGroupFinding{f.Package.PURL, f.Advisories, f.Images, f.Excepted, f.State, f.FromFiles,
			f.FromSBOMs})
		open := 0
		for _, i := range f.SomeImages {
			if !g.excepted(f.Finding, i.Repo, i.Digest, g.now) {
				open++
			}
		}
		if len(f.SomeImages) != min(f.Images, 5) || open != min(f.Images-f.Excepted, 5) {
			t.Errorf("%d images, %d of them excepted: %d are shown, %d of them open", f.Images, f.Excepted,
				len(f.SomeImages), open)
		}
	}
	slices.SortFunc(got, func(a, b trueGroupFinding) int { return strings.Compare(a.key(), b.key()) })
	wanted := slices.DeleteFunc(slices.Clone(want), func(f trueGroupFinding) bool {
		return states != nil && f.State != states[0]
	})
	if diff := gocmp.Diff(wanted, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s lists the findings of %q, states %v: %s", name, place, states, diff)
	}
}

// checkStates checks the states of the findings of all images that a caller may see.
func (g *judgedGame) checkStates(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	r := g.replicas[g.rng.IntN(len(g.replicas))]
	for repo, images := range g.repos {
		for d := range images {
			if !covered(g.sees[name], repo) {
				continue
			}
			for _, state := range []finding.State{finding.StateOpen, finding.StateExcepted} {
				got, _, err := r.service.List(ctx, finding.Image{Repo: repo, Reference: d},
					query.Filter{States: []finding.State{state}}, page.Params{Size: 200})
				must(t, err)
				for _, f := range got.Items {
					if want := g.excepted(f, repo, d, g.now); f.State != state || want != (state == finding.StateExcepted) {
						t.Errorf("%s gets state %d for %s %v of %s in %s, want excepted: %v", name, f.State, f.ID, f.Aliases,
							f.Package.PURL, repo, want)
					}
				}
			}
		}
	}
}

// checkPast checks which exceptions hold for every finding at each of the times.
func (g *judgedGame) checkPast(t *testing.T, times []time.Time) {
	t.Helper()
	ctx := authz.WithCaller(t.Context(), g.callers["of both"])
	var cases []exception.Case
	var found []finding.Finding
	for repo, images := range g.repos {
		if !covered(g.sees["of both"], repo) {
			continue
		}
		for d := range images {
			got, _, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: d}, query.Filter{}, page.Params{Size: 200})
			must(t, err)
			for _, f := range got.Items {
				c := g.caseOf(f.Package.Package, f.Advisories, repo, d)
				cases = append(cases, exception.Case{Repo: repo, Digest: d, Tags: c.tags, Claims: c.claims(),
					Package: f.Package.Package})
				found = append(found, f)
			}
		}
	}
	n := 0
	for _, asOf := range times {
		var repos []resource.UID
		for _, c := range cases {
			repos = append(repos, c.Repo)
		}
		set, err := exception.Read(ctx, findingdb.New(g.DB), repos, asOf, asOf)
		must(t, err)
		for i, c := range cases {
			e, _ := set.Holding(c, asOf, nil)
			want := g.excepted(found[i], cases[i].Repo, cases[i].Digest, asOf)
			if (e.UID != "") != want {
				t.Errorf("at %s: %q for %s of %s, want excepted: %v", asOf, e.UID, found[i].ID, found[i].Package.PURL, want)
			}
			if want {
				n++
			}
		}
	}
	t.Logf("%d cases at %d times, %d excepted", len(cases), len(times), n)
}
