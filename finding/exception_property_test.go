package finding_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/finding"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// A judgedGame is a game with exceptions, at times that it chooses.
type judgedGame struct {
	*game
	now  time.Time
	made map[resource.UID]resource.Exception // all that were ever made
}

// TestExceptedFindings: whatever exceptions are made, approved, deleted and have expired, a
// finding is excepted exactly where a comparison with all of them says so, now and at every
// time before.
func TestExceptedFindings(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		g := &judgedGame{game: newGame(t, url), now: time.Now().UTC().Truncate(time.Second), made: map[resource.UID]resource.Exception{}}
		for range 120 {
			g.act(t)
		}
		for i := range 6 { // one of a folder lends a name to one of the organization
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
				g.checkStates(authz.WithCaller(t.Context(), g.callers[name]), t, name)
			}
			g.checkPast(t, past)
		}
	})
}

// importAs stores an advisory about all versions of a package of npm.
func (g *judgedGame) importAs(t *testing.T, group resource.UID, id string, aliases []string, number int) {
	t.Helper()
	a := resource.Advisory{ID: id, Aliases: aliases, Affected: []resource.Affected{{Ecosystem: "npm", Name: fmt.Sprintf("p%d", number),
		Ranges: []resource.AffectedRange{{Type: "ECOSYSTEM", Events: []resource.RangeEvent{{Introduced: "0"}, {Fixed: "9.0.0"}}}}}}}
	a.Source.Digest = []byte(id)
	_, err := g.ImportAdvisories(t.Context(), group, "test", []resource.Advisory{a})
	must(t, err)
	found, err := g.Advisories(t.Context(), store.Reach{Under: []resource.UID{group}}, resource.AdvisoryFilter{IDs: []string{id}},
		page.Request{Size: 10, Order: page.Order{Field: "uid"}}, true)
	must(t, err)
	for _, v := range found.Items {
		g.advisories[v.UID] = v
	}
}

// decide makes an exception, approves one or deletes one.
func (g *judgedGame) decide(t *testing.T) {
	t.Helper()
	owner := authz.WithCaller(t.Context(), g.callers["of both"])
	live := slices.DeleteFunc(slices.Sorted(maps.Keys(g.made)), func(uid resource.UID) bool { return !g.made[uid].DeleteTime.IsZero() })
	switch n := g.rng.IntN(10); {
	case n < 6 || len(live) == 0:
		g.makeOne(t)
	case n < 8:
		got, err := g.service.ApproveException(owner, live[g.rng.IntN(len(live))])
		must(t, err)
		g.made[got.UID] = got.Exception
	default:
		uid := live[g.rng.IntN(len(live))]
		must(t, g.service.DeleteException(owner, uid))
		gone := g.made[uid]
		gone.DeleteTime = g.now
		g.made[uid] = gone
	}
}

func (g *judgedGame) makeOne(t *testing.T) {
	t.Helper()
	home := g.groups[g.rng.IntN(len(g.groups))]
	e := resource.Exception{UID: home.NewChild(), Target: home, Reason: "r", CreateTime: g.now, UpdateTime: g.now}
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
		e.Advisory = fmt.Sprintf("%s-%d", []string{"CVE", "GHSA", "DSA"}[g.rng.IntN(3)], g.rng.IntN(4))
	}
	if e.Advisory == "" || g.rng.IntN(4) == 0 {
		e.PURL = fmt.Sprintf("pkg:%s/p%d", []string{"npm", "deb/debian"}[g.rng.IntN(2)], g.rng.IntN(6))
		if g.rng.IntN(2) == 0 {
			e.PURL += fmt.Sprintf("@1.%d.0", g.rng.IntN(5))
		}
	}
	if g.rng.IntN(2) == 0 {
		e.ExpireTime = g.now.Add(time.Duration(1+g.rng.IntN(300)) * time.Second)
	}
	if g.rng.IntN(3) > 0 {
		e.ApproveTime = g.now
	}
	must(t, g.InsertExceptions(t.Context(), home, []resource.Exception{e}))
	g.made[e.UID] = e
}

// meant decides in its own words whether an exception is about a package of an image under
// one of the names at a time.
func (g *judgedGame) meant(e resource.Exception, repo resource.UID, digest string, names []string, p resource.Package, at time.Time) bool {
	if e.ApproveTime.IsZero() || at.Before(e.ApproveTime) || !e.ExpireTime.IsZero() && !at.Before(e.ExpireTime) || !e.DeleteTime.IsZero() && !at.Before(e.DeleteTime) {
		return false
	}
	tag, _ := path.Match(e.TagPattern, "v-"+g.repos[repo][digest])
	if !strings.HasPrefix(string(repo)+"/", string(e.Target)+"/") || e.TagPattern != "" && !tag || e.Digest != "" && e.Digest != digest {
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
	is := p.Name
	if !npm {
		is = p.SourceName
	}
	return npm == (p.Ecosystem == "npm") && is == name && (number == "" || number == p.Version)
}

// claims returns for each advisory of a finding the names that mean it: those that can be
// reached over advisories in its group or above it.
func (g *judgedGame) claims(f finding.Finding) (all [][]string) {
	for _, uid := range f.Advisories {
		names := map[string]bool{g.advisories[uid].ID: true}
		for grown := true; grown; {
			grown = false
			for _, other := range f.Advisories {
				o := g.advisories[other]
				called := append([]string{o.ID}, o.Aliases...)
				if !other.Parent().Covers(uid.Parent()) || other != uid && !slices.ContainsFunc(called, func(n string) bool { return names[n] }) {
					continue
				}
				for _, n := range called {
					grown = grown || !names[n]
					names[n] = true
				}
			}
		}
		all = append(all, slices.Sorted(maps.Keys(names)))
	}
	return all
}

func (g *judgedGame) excepted(f finding.Finding, repo resource.UID, digest string, at time.Time) bool {
	for _, names := range g.claims(f) {
		held := false
		for _, e := range g.made {
			held = held || g.meant(e, repo, digest, names, f.Package.Package, at)
		}
		if !held {
			return false
		}
	}
	return true
}

// checkStates compares the states that a caller is told.
func (g *judgedGame) checkStates(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	r := g.replicas[g.rng.IntN(len(g.replicas))]
	for repo, images := range g.repos {
		for d := range images {
			if !covered(g.sees[name], repo) {
				continue
			}
			for _, state := range []finding.State{finding.StateOpen, finding.StateExcepted} {
				got, _, err := r.service.List(ctx, finding.Image{Repo: repo, Reference: d}, finding.Filter{States: []finding.State{state}}, page.Params{Size: 200})
				must(t, err)
				for _, f := range got.Items {
					if want := g.excepted(f, repo, d, g.now); f.State != state || want != (state == finding.StateExcepted) {
						t.Errorf("%s is told %d about %s %v of %s in %s, want excepted: %v", name, f.State, f.ID, f.Aliases, f.Package.PURL, repo, want)
					}
				}
			}
		}
	}
}

// checkPast asks for every finding at many times at once.
func (g *judgedGame) checkPast(t *testing.T, times []time.Time) {
	t.Helper()
	ctx := authz.WithCaller(t.Context(), g.callers["of both"])
	var cases []finding.Case
	var found []finding.Finding
	for repo, images := range g.repos {
		if !covered(g.sees["of both"], repo) {
			continue
		}
		for d, word := range images {
			got, _, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: d}, finding.Filter{}, page.Params{Size: 200})
			must(t, err)
			for _, f := range got.Items {
				cases = append(cases, finding.Case{Repo: repo, Digest: d, Tags: []string{"v-" + word}, Claims: g.claims(f), Package: f.Package.Package})
				found = append(found, f)
			}
		}
	}
	n := 0
	for _, at := range times {
		got, err := g.service.Excepted(ctx, cases, at)
		must(t, err)
		for i, e := range got {
			want := g.excepted(found[i], cases[i].Repo, cases[i].Digest, at)
			if (e.UID != "") != want {
				t.Errorf("at %s: %q for %s of %s, want excepted: %v", at, e.UID, found[i].ID, found[i].Package.PURL, want)
			}
			if want {
				n++
			}
		}
	}
	t.Logf("%d cases at %d times, %d excepted", len(cases), len(times), n)
}
