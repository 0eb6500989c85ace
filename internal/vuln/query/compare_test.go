package query_test

import (
	"context"
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
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// storyGame runs a test with a new game on the engines that storetest.StoryURL chooses. TestPlans of the store runs
// every statement on both engines in any case.
func storyGame(t *testing.T, f func(t *testing.T, g *game)) {
	t.Helper()
	storetest.StoryURL(t, func(t *testing.T, url string) { f(t, newGame(t, url)) })
}

// TestCompare checks for every pair of images that Compare returns the differences between the packages that the test
// put into the images.
func TestCompare(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		for range 60 {
			g.act(t)
		}
		g.settle(t)
		for name, caller := range g.callers {
			g.checkCompare(authz.WithCaller(t.Context(), caller), t, name)
		}
	})
}

func (g *game) checkCompare(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	var images []finding.Image
	word := map[finding.Image]string{}
	for _, repo := range slices.Sorted(maps.Keys(g.repos)) {
		for _, d := range slices.Sorted(maps.Keys(g.repos[repo])) {
			i := finding.Image{Repo: repo, Reference: d}
			images, word[i] = append(images, i), g.repos[repo][d]
		}
	}
	for range 30 {
		a, b := images[g.rng.IntN(len(images))], images[g.rng.IntN(len(images))]
		pair := query.Pair{From: query.PastImage{Image: a}, To: query.PastImage{Image: b}}
		got, err := readAll(func(p page.Params) (page.Page[finding.Change], error) {
			c, err := g.service.Compare(ctx, pair, p)
			return c.Page, err
		})
		if !covered(g.sees[name], a.Repo) || !covered(g.sees[name], b.Repo) {
			if !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s compares images of other groups: %v", name, err)
			}
			continue
		}
		must(t, err)
		var texts []string
		for _, c := range got {
			texts = append(texts, changeText(c))
		}
		slices.Sort(texts)
		want := g.expectedChanges(g.has(a.Repo, a.Reference, word[a]), g.has(b.Repo, b.Reference, word[b]), g.sees[name])
		if diff := gocmp.Diff(want, texts, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s compares %s and %s: %s", name, word[a], word[b], diff)
		}
	}
}

// changeText returns the text of a change, in the form that expectedChanges uses.
func changeText(c finding.Change) string {
	versions := func(packages []registry.Package) string {
		var texts []string
		for _, p := range packages {
			texts = append(texts, p.Version)
		}
		return strings.Join(texts, ",")
	}
	return fmt.Sprintf("%d %s %s %s>%s", c.Kind, c.Ecosystem, c.Name, versions(c.From), versions(c.To))
}

// expectedChanges returns the texts of the differences between the packages of two images.
func (g *game) expectedChanges(from, to []inspect.Package, sees []resource.UID) (texts []string) {
	type key struct{ ecosystem, name string }
	keyOf := func(p inspect.Package) key {
		if p.SourceName != "" {
			return key{"Debian", p.Name}
		}
		return key{"npm", p.Name}
	}
	side := func(packages []inspect.Package, keep func(inspect.Package) bool) map[key][]string {
		out := map[key][]string{}
		for _, p := range packages {
			if keep(p) {
				out[keyOf(p)] = append(out[keyOf(p)], p.Version)
			}
		}
		for k := range out {
			slices.Sort(out[k])
			out[k] = slices.Compact(out[k])
		}
		return out
	}
	add := func(a, b map[key][]string, added, removed, both finding.ChangeKind, unchanged bool) {
		keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
		slices.SortFunc(keys, func(x, y key) int { return strings.Compare(x.ecosystem+" "+x.name, y.ecosystem+" "+y.name) })
		for _, k := range slices.Compact(keys) {
			kind := both
			switch {
			case a[k] == nil:
				kind = added
			case b[k] == nil:
				kind = removed
			case !unchanged && slices.Equal(a[k], b[k]):
				continue
			}
			texts = append(texts, fmt.Sprintf("%d %s %s %s>%s", kind, k.ecosystem, k.name, strings.Join(a[k], ","),
				strings.Join(b[k], ",")))
		}
	}
	every := func(inspect.Package) bool { return true }
	add(side(from, every), side(to, every), finding.PackageAdded, finding.PackageRemoved, finding.PackageChanged, false)
	for _, set := range g.aliasSets(sees, from, to) {
		affected := func(p inspect.Package) bool {
			return slices.ContainsFunc(set.advisories, func(a vuln.Advisory) bool {
				return (key{set.ecosystem, set.name}) == keyOf(p) && affects(a, p)
			})
		}
		add(side(from, affected), side(to, affected), finding.ChangeNew, finding.ChangeFixed, finding.ChangeRemaining, true)
	}
	slices.Sort(texts)
	return texts
}

// An aliasSet contains advisories that share names and affect one package in two images.
type aliasSet struct {
	ecosystem, name string
	advisories      []vuln.Advisory
}

// aliasSets returns the advisories that affect a package of one of the images, grouped by shared names. Names may be
// shared directly or through other advisories.
func (g *game) aliasSets(sees []resource.UID, images ...[]inspect.Package) (united []aliasSet) {
	sets := map[[2]string][]aliasSet{}
	for _, image := range images {
		for _, p := range image {
			k := [2]string{"npm", p.Name}
			if p.SourceName != "" {
				k[0] = "Debian"
			}
			for uid, a := range g.advisories {
				if covered(sees, uid) && affects(a, p) {
					sets[k] = append(sets[k], aliasSet{k[0], k[1], []vuln.Advisory{a}})
				}
			}
		}
	}
	for _, group := range sets {
		for joined := true; joined; {
			joined = false
			for i := range group {
				for j := i + 1; j < len(group) && !joined; j++ {
					if shareName(group[i].advisories, group[j].advisories) {
						group[i].advisories = append(group[i].advisories, group[j].advisories...)
						group, joined = slices.Delete(group, j, j+1), true
					}
				}
				if joined {
					break
				}
			}
		}
		united = append(united, group...)
	}
	return united
}

func shareName(a, b []vuln.Advisory) bool {
	names := func(advisories []vuln.Advisory) (found []string) {
		for _, v := range advisories {
			found = append(append(found, v.ID), v.Aliases...)
		}
		return found
	}
	return slices.ContainsFunc(names(a), func(s string) bool { return slices.Contains(names(b), s) })
}

// TestCompareTimes checks that a tag at a time selects the image to which it pointed at that time, and that an error
// names the side that cannot be compared.
func TestCompareTimes(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		repo := registry.Repo{UID: g.groups[0].NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		first := push(t, g.Store, repo, "a0")
		second := push(t, g.Store, repo, "b1")
		start := g.Time()
		moves := map[string]time.Time{}
		for _, d := range []string{first, second} {
			time.Sleep(3 * time.Millisecond)
			tag, err := g.PutTag(t.Context(), registry.Tag{UID: repo.UID.NewChild(), Name: "latest", Digest: d}, nil)
			must(t, err)
			moves[d] = tag.UpdateTime
		}
		g.settle(t)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		tag := finding.Image{Repo: repo.UID, Reference: "latest"}
		ask := func(from, to query.PastImage) (query.Comparison, error) {
			return g.service.Compare(ctx, query.Pair{From: from, To: to}, page.Params{})
		}
		got, err := ask(query.PastImage{Image: tag, Time: moves[second].Add(-time.Millisecond)}, query.PastImage{Image: tag})
		must(t, err)
		if got.From.Digest != first || got.To.Digest != second {
			t.Errorf("compared %s and %s, want %s and %s", got.From.Digest, got.To.Digest, first, second)
		}
		got, err = ask(query.PastImage{Image: tag, Time: moves[second]}, query.PastImage{Image: tag, Time: moves[first]})
		must(t, err)
		if got.From.Digest != second || got.To.Digest != first {
			t.Errorf("compared %s and %s, want %s and %s", got.From.Digest, got.To.Digest, second, first)
		}
		must(t, g.DeleteManifest(t.Context(), repo.UID, first, nil))
		for name, tt := range map[string]struct {
			from, to query.PastImage
			err      error
			text     string
		}{
			"before there was a tag": {query.PastImage{Image: tag, Time: start}, query.PastImage{Image: tag}, fault.NotFound,
				"from: "},
			"an image that is gone": {query.PastImage{Image: tag}, query.PastImage{Image: tag, Time: moves[first]},
				fault.FailedPrecondition, "to: Precondition failed: the tag pointed to " + first},
			"a digest at a time": {query.PastImage{Image: finding.Image{Repo: repo.UID, Reference: second}, Time: now},
				query.PastImage{Image: tag}, fault.InvalidArgument, "from_time"},
			"no tag": {query.PastImage{Image: tag}, query.PastImage{Image: finding.Image{Reference: "none"}}, fault.NotFound,
				"to: "},
		} {
			if _, err := ask(tt.from, tt.to); !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// The UID combines the caller's group with the last segment of a repo in another organization. No repo has this
		// UID.
		stolen := g.groups[1] + repo.UID[strings.LastIndexByte(string(repo.UID), '/'):]
		thief := authz.WithCaller(t.Context(), g.callers["owner of b"])
		for _, asOf := range []time.Time{{}, moves[second]} {
			_, err := g.service.Compare(thief, query.Pair{From: query.PastImage{Image: finding.Image{Repo: stolen,
				Reference: "latest"}, Time: asOf},
				To: query.PastImage{Image: finding.Image{Reference: "latest"}, Time: asOf}}, page.Params{})
			if !errors.Is(err, fault.NotFound) || strings.Contains(err.Error(), "sha256") {
				t.Errorf("a tag of another organization at %s: %v", asOf, err)
			}
		}
		push(t, g.Store, repo, "c2")
		_, err = ask(query.PastImage{Image: tag}, query.PastImage{Image: finding.Image{Reference: "v-c2"}})
		if !errors.Is(err, fault.FailedPrecondition) || !strings.HasPrefix(err.Error(), "to: ") {
			t.Errorf("an image that was not inspected yet: %v", err)
		}
	})
}
