package query_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// more is what a game knows about tags that move, and about groups that come and go.
type more struct {
	latest   map[resource.UID]string // by repo, the digest that its tag "latest" stands for
	untagged map[string]bool         // by repo and digest, that the tag of the push is gone
	groups   []resource.UID          // that were made meanwhile
}

// actMore does one of the things that happen less often, and reports whether it could.
func (g *game) actMore(t *testing.T) bool {
	t.Helper()
	if g.more.latest == nil {
		g.more.latest, g.more.untagged = map[resource.UID]string{}, map[string]bool{}
	}
	switch g.rng.IntN(6) {
	case 0:
		return g.withdraw(t)
	case 1:
		return g.copyOne(t)
	case 2:
		return g.moveTag(t)
	case 3:
		return g.deleteTag(t)
	case 4:
		return g.addGroup(t)
	}
	return g.deleteGroup(t)
}

// withdraw has the source of an advisory withdraw it, or bring it back.
func (g *game) withdraw(t *testing.T) bool {
	t.Helper()
	uids := slices.Sorted(maps.Keys(g.advisories))
	if len(uids) == 0 {
		return false
	}
	uid := uids[g.rng.IntN(len(uids))]
	a := g.advisories[uid]
	if a.DeleteTime.IsZero() {
		a.DeleteTime = time.Now().UTC().Truncate(time.Second)
	} else {
		a.DeleteTime = time.Time{}
	}
	a.Source.Digest = []byte(rand.Text())
	_, err := g.ImportAdvisories(t.Context(), uid.Parent(), "test", []vuln.Advisory{a})
	must(t, err)
	g.advisories[uid], err = g.Advisory(t.Context(), uid)
	must(t, err)
	return true
}

// anImage returns one of the images.
func (g *game) anImage() (repo resource.UID, digest string, ok bool) {
	repos := slices.Sorted(maps.Keys(g.repos))
	if len(repos) == 0 {
		return "", "", false
	}
	repo = repos[g.rng.IntN(len(repos))]
	digests := slices.Sorted(maps.Keys(g.repos[repo]))
	if len(digests) == 0 {
		return "", "", false
	}
	return repo, digests[g.rng.IntN(len(digests))], true
}

// copyOne pushes an image that one repo has to another one, of any organization.
func (g *game) copyOne(t *testing.T) bool {
	t.Helper()
	from, d, ok := g.anImage()
	if !ok {
		return false
	}
	repos := slices.Sorted(maps.Keys(g.repos))
	to, word := repos[g.rng.IntN(len(repos))], g.repos[from][d]
	g.repos[to][push(t, g.Store, g.named[to], word)] = word
	delete(g.more.untagged, string(to)+d)
	return true
}

// moveTag has the tag "latest" of a repo stand for another image.
func (g *game) moveTag(t *testing.T) bool {
	t.Helper()
	repo, d, ok := g.anImage()
	if !ok {
		return false
	}
	m, err := g.Manifest(t.Context(), repo, d)
	must(t, err)
	m.ArtifactType, m.Needs = registry.ImageConfigs[0], []registry.Need{{Digest: digest(g.repos[repo][d])}}
	_, err = g.PutManifest(t.Context(), registrydb.RepoRef{Group: repo.Parent(), Name: g.named[repo].Name}, m,
		[]string{"latest"})
	must(t, err)
	g.more.latest[repo] = d
	return true
}

// deleteTag deletes the tag that came with a push. The image stays.
func (g *game) deleteTag(t *testing.T) bool {
	t.Helper()
	repo, d, ok := g.anImage()
	if !ok || g.more.untagged[string(repo)+d] {
		return false
	}
	must(t, g.DeleteTagNamed(t.Context(), repo, "v-"+g.repos[repo][d], nil))
	g.more.untagged[string(repo)+d] = true
	return true
}

// untag forgets the tags of an image that is gone.
func (g *game) untag(repo resource.UID, d string) {
	delete(g.more.untagged, string(repo)+d)
	if g.more.latest[repo] == d {
		delete(g.more.latest, repo)
	}
}

// tagsOf returns the tags that stand for an image.
func (g *game) tagsOf(repo resource.UID, d, word string) string {
	var all []string
	if g.more.latest[repo] == d {
		all = append(all, "latest")
	}
	if !g.more.untagged[string(repo)+d] {
		all = append(all, "v-"+word)
	}
	return strings.Join(all, ",")
}

// addGroup makes a group below another one.
func (g *game) addGroup(t *testing.T) bool {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	uid := g.groups[g.rng.IntN(len(g.groups))].NewChild()
	if uid.Depth() > 5 {
		return false
	}
	_, err := g.InsertGroup(t.Context(), resource.Group{UID: uid,
		Name:       fmt.Sprintf("g-%s", strings.ToLower(rand.Text()[:8])),
		CreateTime: now, UpdateTime: now})
	must(t, err)
	g.groups, g.more.groups = append(g.groups, uid), append(g.more.groups, uid)
	return true
}

// deleteGroup deletes a group that was made meanwhile, with all that is in it.
func (g *game) deleteGroup(t *testing.T) bool {
	t.Helper()
	for i, uid := range slices.Backward(g.more.groups) {
		if slices.ContainsFunc(g.groups, func(other resource.UID) bool { return other != uid && uid.Covers(other) }) {
			continue
		}
		for _, repo := range slices.Sorted(maps.Keys(g.repos)) {
			if uid.Covers(repo) {
				must(t, g.DeleteRepo(t.Context(), repo))
				for d := range g.repos[repo] {
					g.untag(repo, d)
				}
				delete(g.repos, repo)
				delete(g.named, repo)
				delete(g.attached, repo)
			}
		}
		for _, a := range slices.Sorted(maps.Keys(g.advisories)) {
			if uid.Covers(a) {
				must(t, g.DeleteAdvisory(t.Context(), a))
				delete(g.advisories, a)
			}
		}
		must(t, g.DeleteGroup(t.Context(), uid, ""))
		g.more.groups = slices.Delete(g.more.groups, i, i+1)
		g.groups = slices.DeleteFunc(g.groups, func(other resource.UID) bool { return other == uid })
		return true
	}
	return false
}
