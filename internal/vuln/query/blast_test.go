package query_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
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
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// traffic contains the recorded pulls and the pushed inventories.
type traffic struct {
	pulls   []registry.Pull
	running map[resource.UID][]string // digests in the inventory of each group
}

// stir records pulls of random images by random callers, some of them long ago. It also pushes an inventory of random
// digests to every group.
func (g *game) stir(t *testing.T) (w traffic) {
	t.Helper()
	w.running = map[resource.UID][]string{}
	var identities []resource.UID
	for _, name := range slices.Sorted(maps.Keys(g.callers)) {
		identities = append(identities, g.callers[name].Identity)
	}
	var digests []string
	for _, repo := range slices.Sorted(maps.Keys(g.repos)) {
		for _, d := range slices.Sorted(maps.Keys(g.repos[repo])) {
			digests = append(digests, d)
			for range g.rng.IntN(4) {
				pulled := g.Time().Add(-time.Duration(g.rng.IntN(60)) * 24 * time.Hour)
				w.pulls = append(w.pulls, registry.Pull{UID: repo.NewRisingChild(pulled), Digest: d, Time: pulled,
					Push: g.rng.IntN(4) == 0, Identity: identities[g.rng.IntN(len(identities))]})
			}
		}
	}
	must(t, g.InsertPulls(t.Context(), w.pulls))
	for _, group := range g.groups {
		p := vuln.InventoryPlace{Group: group, Name: "cluster", PushTime: g.Time(), ExpireTime: g.Time().Add(time.Hour)}
		var entries []vuln.InventoryEntry
		for range g.rng.IntN(5) {
			d := digests[g.rng.IntN(len(digests))]
			entries, w.running[group] = append(entries, vuln.InventoryEntry{Digest: d}), append(w.running[group], d)
		}
		p.Entries = len(entries)
		must(t, g.ReplaceInventory(t.Context(), p, entries))
	}
	return w
}

// TestBlast checks that every stage lists exactly the items that a simple computation over the test's model gives,
// limited to what the caller may see.
func TestBlast(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		for range 80 {
			g.act(t)
		}
		g.settle(t)
		w := g.stir(t)
		begin, ticks := g.Time(), &atomic.Int64{}
		for _, r := range g.replicas { // the clock advances at every read, so that pages are read at different times
			r.Now = func() time.Time { return begin.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
		}
		for name, caller := range g.callers {
			ctx := authz.WithCaller(t.Context(), caller)
			for n := range 4 {
				id := fmt.Sprintf("CVE-%d", n)
				called := g.called(id, g.sees[name])
				if want := unanswerable(called); want != nil {
					if _, _, err := g.blast.Get(ctx, blast.Vulnerability{ID: id}, 2); !errors.Is(err, want) {
						t.Errorf("%s asks about %s: %v, want %v", name, id, err, want)
					}
					continue
				}
				g.checkBlast(ctx, t, w, name, blast.Vulnerability{ID: id, Days: 20}, func(p inspect.Package) bool {
					return slices.ContainsFunc(called, func(a vuln.Advisory) bool { return affects(a, p) })
				})
			}
			g.checkBlast(ctx, t, w, name, blast.Vulnerability{PURL: "pkg:npm/p1", Range: "<1.3.0", Days: 20},
				func(p inspect.Package) bool {
					return p.SourceName == "" && p.Name == "p1" && p.Version < "1.3.0"
				})
		}
	})
}

// checkBlast compares all stages with the items that it computes from the model.
func (g *game) checkBlast(
	ctx context.Context, t *testing.T, w traffic, name string, v blast.Vulnerability, is func(inspect.Package) bool,
) {
	t.Helper()
	want := map[blast.Stage][]string{}
	add := func(s blast.Stage, text string) { want[s] = append(want[s], text) }
	affected := map[resource.UID]map[string]bool{}
	for repo, images := range g.repos {
		for d, word := range images {
			has := slices.DeleteFunc(slices.Clone(g.has(repo, d, word)), func(p inspect.Package) bool { return !is(p) })
			if len(has) == 0 || !covered(g.sees[name], repo) {
				continue
			}
			if affected[repo] == nil {
				affected[repo] = map[string]bool{}
			}
			affected[repo][d] = true
			add(blast.StageImages, string(repo)+" "+d)
			for tag := range strings.SplitSeq(g.tagsOf(repo, d, word), ",") {
				if tag != "" {
					add(blast.StageTags, string(repo)+" "+tag)
				}
			}
			for _, p := range has {
				add(blast.StagePackages, p.Purl+fmt.Sprint(p.Owner != ""))
			}
		}
	}
	for _, p := range w.pulls {
		if affected[p.Repo()][p.Digest] && !p.Push && p.Time.After(g.Time().AddDate(0, 0, -v.Days)) {
			add(blast.StagePulled, string(p.Identity))
		}
	}
	for group, digests := range w.running {
		for _, d := range digests {
			for repo, images := range affected {
				if covered(g.sees[name], group) && group.Root() == repo.Root() && images[d] {
					add(blast.StageRunning, string(group)+" "+d)
					break
				}
			}
		}
	}
	for holder, groups := range g.sees { // in this test a caller who has a role in a group has all roles there
		for repo := range affected {
			if covered(groups, repo) && slices.ContainsFunc(groups, func(group resource.UID) bool {
				return covered(g.sees[name], group)
			}) {
				add(blast.StageCanPull, string(g.callers[holder].Identity))
				add(blast.StageCanPush, string(g.callers[holder].Identity))
			}
		}
	}
	for stage, got := range g.stages(ctx, t, v) {
		if stage == blast.StageOwners {
			continue // TestBlastPeople checks the owners
		}
		texts := want[stage]
		slices.Sort(texts)
		if stage != blast.StageRunning {
			texts = slices.Compact(texts)
		}
		slices.Sort(got)
		if diff := gocmp.Diff(texts, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s lists stage %d of %s%s: %s", name, stage, v.ID, v.PURL, diff)
		}
	}
}

// stages reads all pages of every stage.
func (g *game) stages(ctx context.Context, t *testing.T, v blast.Vulnerability) map[blast.Stage][]string {
	t.Helper()
	out := map[blast.Stage][]string{}
	first, _, err := g.blast.Get(ctx, v, 2)
	must(t, err)
	for _, p := range first {
		items := p.Items
		for token := p.Next; token != ""; {
			next, err := g.blast.List(ctx, blast.Vulnerability{}, page.Params{Size: 2, Token: token})
			must(t, err)
			items, token = append(items, next.Items...), next.Next
		}
		if int(p.Total) != len(items) {
			t.Errorf("the total of stage %d is %d, but it has %d items", p.Stage, p.Total, len(items))
		}
		for _, i := range items {
			out[p.Stage] = append(out[p.Stage], itemText(i))
		}
	}
	return out
}

func itemText(i blast.Item) string {
	switch {
	case i.Package != nil:
		return i.Package.PURL + fmt.Sprint(i.Package.Owned)
	case i.Image != nil:
		return string(i.Image.Repo) + " " + i.Image.Digest
	case i.Tag != nil:
		return string(i.Tag.Repo) + " " + i.Tag.Name
	case i.Running != nil:
		return string(i.Running.Place.Group) + " " + i.Running.Digest
	case i.Deployment != nil:
		return "deployed " + string(i.Deployment.UID)
	}
	return string(i.Identity.UID)
}

// blastGaps returns the total of a stage, and the codes and counts of its gaps.
func (g *game) blastGaps(ctx context.Context, t *testing.T, v blast.Vulnerability) string {
	t.Helper()
	p, err := g.blast.List(ctx, v, page.Params{})
	must(t, err)
	var gaps []string
	for _, gap := range p.Gaps {
		gaps = append(gaps, fmt.Sprintf("%s:%d", gap.Code, gap.Count))
	}
	return fmt.Sprint(p.Total, " ", strings.Join(gaps, " "))
}

// TestBlastGaps checks that a stage that may be incomplete says why.
func TestBlastGaps(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		now := g.Time()
		org, folder := g.groups[0], g.sees["of a folder"][0]
		repo := registry.Repo{UID: folder.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		d := push(t, g.Store, repo, "a0")
		g.settle(t)
		inStage := func(stage blast.Stage) blast.Vulnerability {
			p := contents("a0", 1)[0]
			return blast.Vulnerability{PURL: strings.SplitN(p.Purl, "?", 2)[0], Stage: stage}
		}
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		check := func(step string, stage blast.Stage, want string) {
			t.Helper()
			if got := g.blastGaps(ctx, t, inStage(stage)); got != want {
				t.Errorf("%s: %q, want %q", step, got, want)
			}
		}
		check("nothing is missing", blast.StageImages, "1 ")
		check("no inventory was pushed", blast.StageRunning, "0 NO_INVENTORY:0")
		pushInventory := func(expire time.Duration, entries ...vuln.InventoryEntry) {
			t.Helper()
			p := vuln.InventoryPlace{Group: org, Name: fmt.Sprint(expire), PushTime: now, ExpireTime: now.Add(expire),
				Entries: len(entries)}
			for _, e := range entries {
				if e.Digest == "" {
					p.Unknown++
				}
			}
			must(t, g.ReplaceInventory(t.Context(), p, entries))
		}
		pushInventory(-time.Second, vuln.InventoryEntry{Digest: d})
		check("the inventory is out of date", blast.StageRunning, "0 NO_INVENTORY:0 INVENTORY_EXPIRED:1")
		pushInventory(time.Hour, vuln.InventoryEntry{Digest: d}, vuln.InventoryEntry{Image: "app:1"})
		check("one entry has no digest", blast.StageRunning, "1 INVENTORY_EXPIRED:1 NOT_KNOWN_BY_DIGEST:1")
		must(t, g.InsertDeployment(t.Context(), registry.Deployment{UID: repo.UID, CreateTime: now, UpdateTime: now}))
		check("the repo has a deployment", blast.StageRunning, "2 INVENTORY_EXPIRED:1 NOT_KNOWN_BY_DIGEST:1")
		check("pulls", blast.StagePulled, "0 ")
		long := inStage(blast.StagePulled)
		long.Days = 100
		if got := g.blastGaps(ctx, t, long); got != "0 RECORDS_PRUNED:0" {
			t.Errorf("pulls of 100 days: %q", got)
		}
		must(t, g.InsertPulls(t.Context(), []registry.Pull{{UID: repo.UID.NewRisingChild(now), Time: now, More: 5}}))
		check("pulls by callers without a role are recorded together", blast.StagePulled, "0 RECORDED_TOGETHER:1")
		must(t, g.NoteLostPulls(t.Context(), 3))
		check("records were lost", blast.StagePulled, "0 RECORDED_TOGETHER:1 RECORDS_LOST:0")
		push(t, g.Store, repo, "b1")
		check("an image is not inspected yet", blast.StageImages, "1 NOT_INDEXED:1")
		check("an image is not inspected yet, so tags may be missing", blast.StageTags, "1 IMAGES_INCOMPLETE:0")
		ctx = authz.WithCaller(t.Context(), g.callers["owner of b"])
		check("images of another organization", blast.StageImages, "0 ")
		check("the inventory of another organization", blast.StageRunning, "0 NO_INVENTORY:0")
		ctx = authz.WithCaller(t.Context(), g.callers["of nothing"])
		check("a caller without roles", blast.StageImages, "0 NOT_ALLOWED:0")
		ctx = authz.WithCaller(t.Context(), g.callers["of a folder"])
		check("a caller who cannot see the groups above", blast.StageCanPush, "1 IMAGES_INCOMPLETE:0 GROUPS_ABOVE:0")
		for stage, want := range map[blast.Stage]string{
			blast.StageImages: "1 NOT_INDEXED:1", blast.StageRunning: "0 IMAGES_INCOMPLETE:0 NOT_ALLOWED:0",
			blast.StagePulled: "0 IMAGES_INCOMPLETE:0 NOT_ALLOWED:0", blast.StageOwners: "0 IMAGES_INCOMPLETE:0 NOT_ALLOWED:0",
		} {
			caps := resource.NewCapabilities(resource.RepoList, resource.SBOMsList)
			ctx = authz.WithCaller(t.Context(), authz.Caller{Identity: g.callers["owner of a"].Identity, Caps: &caps})
			check("with a token that has fewer capabilities", stage, want)
		}
	})
}

// TestBlastIndex checks that the tag of an index, and an inventory that contains an index, lead to the images in the
// index.
func TestBlastIndex(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		now := g.Time()
		repo := registry.Repo{UID: g.groups[0].NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		d := push(t, g.Store, repo, "a0")
		body := `{"schemaVersion":2,"manifests":[]}`
		index := registry.Manifest{Digest: digest(body), MediaType: "application/vnd.oci.image.index.v1+json",
			Size: int64(len(body)), Body: []byte(body), Needs: []registry.Need{{Digest: d, Manifest: true}}}
		ref := registrydb.RepoRef{Group: repo.UID.Parent(), Name: repo.Name}
		_, err := g.PutManifest(t.Context(), ref, index, []string{"multi"})
		must(t, err)
		g.settle(t)
		place := vuln.InventoryPlace{Group: g.groups[0], Name: "c", PushTime: now, ExpireTime: now.Add(time.Hour),
			Entries: 1}
		must(t, g.ReplaceInventory(t.Context(), place, []vuln.InventoryEntry{{Digest: index.Digest}}))
		v := blast.Vulnerability{PURL: strings.SplitN(contents("a0", 1)[0].Purl, "?", 2)[0]}
		got := g.stages(authz.WithCaller(t.Context(), g.callers["owner of a"]), t, v)
		if diff := gocmp.Diff([]string{string(repo.UID) + " multi", string(repo.UID) + " v-a0"},
			got[blast.StageTags]); diff != "" {
			t.Error(diff)
		}
		if diff := gocmp.Diff([]string{string(g.groups[0]) + " " + index.Digest}, got[blast.StageRunning]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestBlastPeople checks that the owners of a repo are the owners of the nearest group that has owners, and that
// everybody can pull from a public repo.
func TestBlastPeople(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		now, folder := g.Time(), g.sees["of a folder"][0]
		for i, group := range []resource.UID{g.groups[0], folder} { // the organization a, and a folder in it
			repo := registry.Repo{UID: group.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
			must(t, g.InsertRepo(t.Context(), repo))
			push(t, g.Store, repo, "a0")
			if i == 1 {
				_, err := g.UpdateRegistrySettings(t.Context(), group,
					func(s *registry.Settings) error { s.Public = true; return nil })
				must(t, err)
			}
		}
		robot := folder.NewChild()
		must(t, g.InsertIdentity(t.Context(), resource.Identity{UID: robot, Name: "ci", CreateTime: now, UpdateTime: now,
			LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test",
				Subject: "ci"}}}))
		_, err := g.InsertBindings(t.Context(), []resource.RoleBinding{{UID: folder.NewChild(), Identity: robot,
			Role: resource.ManagedRoleUID("registry.pull"), CreateTime: now}})
		must(t, err)
		g.settle(t)
		v := blast.Vulnerability{PURL: strings.SplitN(contents("a0", 1)[0].Purl, "?", 2)[0]}
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		who := func(name string) string { return string(g.callers[name].Identity) }
		got := g.stages(ctx, t, v)
		for stage, want := range map[blast.Stage][]string{
			blast.StageOwners:  {who("owner of a"), who("of both"), who("of all"), who("of a folder")},
			blast.StageCanPush: {who("owner of a"), who("of both"), who("of all"), who("of a folder")},
			blast.StageCanPull: {who("owner of a"), who("of both"), who("of all"), who("of a folder"), string(robot), ""},
		} {
			if diff := gocmp.Diff(want, got[stage], cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("stage %d: %s", stage, diff)
			}
		}
		v.Stage = blast.StageOwners
		p, err := g.blast.List(ctx, v, page.Params{})
		must(t, err)
		for _, i := range p.Items {
			if i.Identity.Repos != 1 {
				t.Errorf("%s owns %d repos", i.Identity.UID, i.Identity.Repos)
			}
		}
		v.Stage = blast.StageCanPull
		p, err = g.blast.List(ctx, v, page.Params{})
		must(t, err)
		for _, i := range p.Items {
			if i.Identity.UID == robot && i.Identity.Name != "ci" {
				t.Errorf("the robot is called %q", i.Identity.Name)
			}
		}
	})
}

// TestBadBlast checks that an invalid query is refused.
func TestBadBlast(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		for name, v := range map[string]blast.Vulnerability{
			"neither advisory nor package":   {},
			"both an advisory and a package": {ID: "CVE-1", PURL: "pkg:npm/a"},
			"no stage":                       {ID: "CVE-1"},
			"too many days":                  {ID: "CVE-1", Days: 366, Stage: 1},
			"bad purl":                       {PURL: "x", Stage: 1},
			"bad range":                      {PURL: "pkg:npm/a", Range: "<<", Stage: 1},
		} {
			if _, err := g.blast.List(ctx, v, page.Params{}); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, _, err := g.blast.Get(t.Context(), blast.Vulnerability{ID: "CVE-1"}, 0)
		if !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("an anonymous caller: %v", err)
		}
	})
}
