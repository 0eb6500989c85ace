package query_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// aRepo creates a repo in a group.
func (g *game) aRepo(t *testing.T, group resource.UID, name string) registry.Repo {
	t.Helper()
	now := g.DB.Time()
	repo := registry.Repo{UID: group.NewChild(), Name: name, CreateTime: now, UpdateTime: now}
	must(t, g.InsertRepo(t.Context(), repo))
	return repo
}

// about imports an advisory and returns its UID. The advisory affects all versions of npm packages with these names,
// or of Debian packages that are built from sources with these names.
func (g *game) about(t *testing.T, group resource.UID, id, ecosystem string, names ...string) resource.UID {
	t.Helper()
	a := vuln.Advisory{ID: id}
	for _, name := range names {
		a.Affected = append(a.Affected, vuln.Affected{Ecosystem: ecosystem, Name: name,
			Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}}}}})
	}
	a.Source.Digest = []byte(id)
	_, err := g.ImportAdvisories(t.Context(), group, "test", []vuln.Advisory{a})
	must(t, err)
	g.relearn(t, group, id)
	for uid, a := range g.advisories {
		if a.ID == id && uid.Parent() == group {
			return uid
		}
	}
	t.Fatal("the advisory does not exist")
	return ""
}

var everyName = []string{"p0", "p1", "p2", "p3", "p4", "p5"}

// TestExceptionEnds checks that an exception holds until one millisecond before its expire time, and does not hold at
// that time. It checks this in lists, in counts and for pulls.
func TestExceptionEnds(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		repo := g.aRepo(t, org, "app")
		d := push(t, g.Store, repo, "a0")
		g.about(t, org, "CVE-1", "npm", everyName...)
		g.about(t, org, "CVE-2", "Debian:12", everyName...)
		g.settle(t)
		now := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
		for _, r := range g.replicas {
			r.Now = func() time.Time { return now }
		}
		must(t, g.InsertPullRule(t.Context(), vuln.PullRule{UID: org.NewChild(), Target: org, Enforce: true,
			CreateTime: now, UpdateTime: now}))
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		end := now.Add(time.Minute)
		for _, id := range []string{"CVE-1", "CVE-2"} {
			_, err := g.policy.CreateException(ctx, org, vuln.Exception{Advisory: id, Reason: "r", ExpireTime: end})
			must(t, err)
		}
		m, err := g.StatManifest(t.Context(), repo.UID, d)
		must(t, err)
		for asOf, want := range map[time.Time]finding.State{now: finding.StateExcepted,
			end.Add(-time.Millisecond): finding.StateExcepted, end: finding.StateOpen} {
			now = asOf
			g.hasState(ctx, t, repo.UID, d, want)
			gate := policy.NewGate(findingdb.New(g.DB), imagedb.New(g.DB), advisorydb.New(g.DB), nil, metric.Metrics{})
			why, err := gate.Check(ctx, repo.UID, m, false)
			must(t, err)
			if (why != "") != (want == finding.StateOpen) {
				t.Errorf("at %s the gate says %q", asOf, why)
			}
		}
	})
}

// hasState checks that all findings of an image have the state want, wherever they are listed or counted. The image
// must be the only image of its repo.
func (g *game) hasState(ctx context.Context, t *testing.T, repo resource.UID, d string, want finding.State) {
	t.Helper()
	one, _, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: d}, query.Filter{}, page.Params{Size: 200})
	must(t, err)
	group, _, err := g.service.ListGroup(ctx, query.Place{Group: repo}, query.Filter{}, page.Params{Size: 200})
	must(t, err)
	if len(one.Items) == 0 || len(one.Items) != len(group.Items) {
		t.Fatalf("the image has %d findings, and its repo %d", len(one.Items), len(group.Items))
	}
	listed := slices.Clone(one.Items)
	for _, f := range group.Items {
		listed = append(listed, f.Finding)
	}
	for _, f := range listed {
		if f.State != want || (f.Exception != "") != (want == finding.StateExcepted) {
			t.Errorf("%s of %s has state %d, want %d", f.ID, f.Package.PURL, f.State, want)
		}
	}
	_, sum, err := g.service.Summarize(ctx, query.Place{Group: repo}, 1, page.Params{})
	must(t, err)
	open, excepted := sum.Total.Now.Sum(), sum.Total.Excepted
	if (open > 0) != (want == finding.StateOpen) || (excepted > 0) != (want == finding.StateExcepted) ||
		sum.Series[0].Open.Sum() != open {
		t.Errorf("%d are open and %d excepted, in the series %d", open, excepted, sum.Series[0].Open.Sum())
	}
}

// TestExceptionOfOneImage checks that an exception on one image of a repo does not hide the findings of another image
// with the same packages, in lists and in counts.
func TestExceptionOfOneImage(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		both, alone := g.aRepo(t, org, "both"), g.aRepo(t, org, "alone")
		first, second := sharing(t)
		d := push(t, g.Store, both, first)
		push(t, g.Store, both, second)
		push(t, g.Store, alone, second)
		g.about(t, org, "CVE-1", "npm", everyName...)
		g.about(t, org, "CVE-2", "Debian:12", everyName...)
		g.settle(t)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		for _, id := range []string{"CVE-1", "CVE-2"} {
			_, err := g.policy.CreateException(ctx, org, vuln.Exception{Advisory: id, Target: both.UID, Reason: "r", Digest: d})
			must(t, err)
		}
		_, want, err := g.service.Summarize(ctx, query.Place{Group: alone.UID}, 1, page.Params{})
		must(t, err)
		_, got, err := g.service.Summarize(ctx, query.Place{Group: both.UID}, 1, page.Params{})
		must(t, err)
		if want.Total.Now.Sum() == 0 || got.Total.Now != want.Total.Now || got.Series[0].Open != want.Series[0].Open {
			t.Errorf("open are %+v and in the series %+v, want %+v", got.Total.Now, got.Series[0].Open, want.Total.Now)
		}
	})
}

// sharing returns the words of two images that both have the same npm package and the same Debian package.
func sharing(t *testing.T) (first, second string) {
	t.Helper()
	has := func(word, purl string) bool {
		return slices.ContainsFunc(contents(word, 1), func(p inspect.Package) bool { return p.Purl == purl })
	}
	for i := range 60 {
		first, second = "a0", fmt.Sprintf("%c%d", 'b'+i/3, i%3)
		for _, p := range contents(first, 1) {
			if p.Ecosystem == "npm" && p.Owner == "" && has(second, p.Purl) {
				return first, second
			}
		}
	}
	t.Fatal("no two images share a package")
	return "", ""
}

// onlyClaimed returns the word of an SBOM, and an npm package that the SBOM lists. The image does not have this package
// in any version.
func onlyClaimed(image string) (word string, p inspect.Package) {
	for i := range 9 {
		word = fmt.Sprintf("s%d", i)
		for _, p := range claimed(word) {
			if p.Ecosystem == "npm" && !slices.ContainsFunc(contents(image, 1),
				func(q inspect.Package) bool { return q.Name == p.Name }) {
				return word, p
			}
		}
	}
	panic("all SBOMs list what the image has")
}

// TestClaimsClose checks a finding in a package that only an SBOM lists. It must be closed when the tag moves, and its
// first-seen time must be the time when the SBOM was attached. If the SBOM was attached after the tag moved, there must
// be no such finding.
func TestClaimsClose(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		start := time.Now().UTC().Truncate(time.Second)
		now := start
		for _, r := range g.replicas {
			r.Now = func() time.Time { return now }
		}
		after := func(seconds int) time.Time { now = start.Add(time.Duration(seconds) * time.Second); return now }
		org := g.groups[0]
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		closed := func(repo resource.UID) []finding.Finding {
			got, _, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: "latest"},
				query.Filter{States: []finding.State{finding.StateClosed}}, page.Params{Size: 200})
			must(t, err)
			return got.Items
		}
		word, p := onlyClaimed("a0")
		g.about(t, org, "CVE-1", "npm", p.Name)
		var repos []registry.Repo
		var olds []string
		for i := range 2 {
			repos = append(repos, g.aRepo(t, org, fmt.Sprint("r", i)))
			olds = append(olds, push(t, g.Store, repos[i], "a0"))
			_, err := g.PutTag(t.Context(), registry.Tag{UID: repos[i].UID.NewChild(), Name: "latest", Digest: olds[i]}, nil)
			must(t, err)
		}
		g.settle(t)
		attached := after(10)
		g.attach(t, repos[0], attachment{by: resource.NewRoot()}, olds[0], word)
		g.settle(t)
		moved := after(20)
		for _, repo := range repos { // moves the tag to an image that does not have the package
			_, err := g.PutTag(t.Context(), registry.Tag{UID: repo.UID.NewChild(), Name: "latest",
				Digest: push(t, g.Store, repo, without(p.Name))}, nil)
			must(t, err)
		}
		after(30)
		g.attach(t, repos[1], attachment{by: resource.NewRoot()}, olds[1], word)
		g.settle(t)
		got := closed(repos[0].UID)
		if len(got) != 1 || got[0].ID != "CVE-1" || !got[0].FirstSeen.Equal(attached) || !got[0].CloseTime.Equal(moved) ||
			got[0].CloseReason != finding.CloseImageChanged {
			t.Errorf("closed: %+v", got)
		}
		if got := closed(repos[1].UID); len(got) != 0 {
			t.Errorf("closed, and never known: %+v", got)
		}
	})
}

// without returns the word of an image that does not have the npm package with a name.
func without(name string) string {
	for i := range 20 {
		word := fmt.Sprintf("%c1", 'a'+i)
		if !slices.ContainsFunc(contents(word, 1), func(p inspect.Package) bool { return p.Name == name }) {
			return word
		}
	}
	panic("all images have the package")
}

// TestGroupClaimsOfOthers checks a repo that does not have the layers of an image. Only the packages in the image's
// SBOMs may count there. No list, count or closed finding may reveal the packages in the layers.
func TestGroupClaimsOfOthers(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		owner, thief := g.aRepo(t, g.groups[0], "app"), g.aRepo(t, g.groups[1], "app")
		d := push(t, g.Store, owner, "a0")
		stolen, err := g.Manifest(t.Context(), owner.UID, d)
		must(t, err)
		stolen.ArtifactType, stolen.Needs = registry.ImageConfigs[0], []registry.Need{{Digest: digest("a0"), Optional: true}}
		_, err = g.PutManifest(t.Context(), registrydb.RepoRef{Group: thief.UID.Parent(), Name: "app"}, stolen,
			[]string{"latest"})
		must(t, err)
		word, p := onlyClaimed("a0")
		g.attach(t, thief, attachment{by: resource.NewRoot()}, d, word)
		past := g.about(t, g.groups[1], "CVE-1", "npm", everyName...)
		g.about(t, g.groups[1], "CVE-2", "Debian:12", everyName...)
		g.settle(t)
		must(t, g.DeleteAdvisory(t.Context(), past))
		g.about(t, g.groups[1], "CVE-3", "npm", everyName...)
		g.settle(t)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of b"])
		isClaim := func(f finding.Finding) bool {
			return slices.ContainsFunc(claimed(word), func(p inspect.Package) bool { return p.Purl == f.Package.PURL })
		}
		group, covers, err := g.service.ListGroup(ctx, query.Place{}, query.Filter{}, page.Params{Size: 200})
		must(t, err)
		found := false
		for _, f := range group.Items {
			if !isClaim(f.Finding) || f.FromFiles || !f.FromSBOMs || f.Images != 1 || len(f.SomeImages) != 1 ||
				!f.SomeImages[0].Claimed {
				t.Errorf("the thief sees %+v", f)
			}
			found = found || f.Package.PURL == p.Purl
		}
		if !found || covers.Images != 1 || covers.NotUnderstood != 1 || covers.Indexed != 0 {
			t.Errorf("%s is listed: %v; coverage %+v", p.Purl, found, covers)
		}
		_, sum, err := g.service.Summarize(ctx, query.Place{}, 1, page.Params{})
		must(t, err)
		names := map[string]bool{}
		for _, f := range group.Items {
			names[f.Package.Name+f.ID] = true
		}
		if sum.Total.Now.Sum() != len(names) {
			t.Errorf("%d findings of the tag, want %d", sum.Total.Now.Sum(), len(names))
		}
		got, _, err := g.service.List(ctx, finding.Image{Repo: thief.UID, Reference: "latest"},
			query.Filter{States: []finding.State{finding.StateOpen, finding.StateClosed}}, page.Params{Size: 200})
		must(t, err)
		if i := slices.IndexFunc(got.Items, func(f finding.Finding) bool { return !isClaim(f) }); i >= 0 ||
			len(got.Items) == 0 {
			t.Errorf("the thief sees %+v", got.Items)
		}
	})
}

// TestCompareStates checks that a finding in a comparison has the state that follows from the exceptions for the image
// on its side.
func TestCompareStates(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		from, to := g.aRepo(t, org, "from"), g.aRepo(t, org, "to")
		a, b := push(t, g.Store, from, "a0"), push(t, g.Store, to, "a0")
		g.about(t, org, "CVE-1", "npm", everyName...)
		g.about(t, org, "CVE-2", "Debian:12", everyName...)
		g.settle(t)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		for _, id := range []string{"CVE-1", "CVE-2"} {
			_, err := g.policy.CreateException(ctx, org, vuln.Exception{Advisory: id, Reason: "r", Target: to.UID})
			must(t, err)
		}
		states := func(from, to finding.Image, want finding.State) {
			t.Helper()
			got, err := g.service.Compare(ctx, query.Pair{From: query.PastImage{Image: from}, To: query.PastImage{Image: to}},
				page.Params{Size: 200})
			must(t, err)
			if got.Counts[finding.ChangeRemaining] == 0 {
				t.Fatal("there are no findings")
			}
			for _, c := range got.Items {
				if c.Finding != nil && c.Finding.State != want {
					t.Errorf("%s of %s has state %d, want %d", c.Finding.ID, c.Name, c.Finding.State, want)
				}
			}
		}
		first, second := finding.Image{Repo: from.UID, Reference: a}, finding.Image{Repo: to.UID, Reference: b}
		states(first, second, finding.StateExcepted)
		states(second, first, finding.StateOpen)
	})
}

// TestGroupStatesRefused checks that listing the findings of a group with an unsupported state is refused, with an
// error that names the state.
func TestGroupStatesRefused(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		for name, caller := range map[string]authz.Caller{"the owner": g.callers["owner of a"],
			"another": g.callers["owner of b"]} {
			ctx := authz.WithCaller(t.Context(), caller)
			_, _, err := g.service.ListGroup(ctx, query.Place{Group: g.groups[0]},
				query.Filter{States: []finding.State{finding.StateClosed}}, page.Params{})
			if !errors.Is(err, fault.InvalidArgument) || !strings.Contains(fmt.Sprintf("%+v", err), "closed") {
				t.Errorf("%s gets the error %v", name, err)
			}
		}
	})
}
