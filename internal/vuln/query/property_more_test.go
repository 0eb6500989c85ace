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

// tagsAndGroups records which tags were moved or deleted, and which groups were created.
type tagsAndGroups struct {
	latest   map[resource.UID]string // digest to which the tag "latest" of a repo points, by repo
	untagged map[string]bool         // images whose original tag was deleted, by repo and digest
	groups   []resource.UID          // groups that were created during the game
}

// actMore performs one of the less frequent actions. It reports whether the action was possible.
func (g *game) actMore(t *testing.T) bool {
	t.Helper()
	if g.extra.latest == nil {
		g.extra.latest, g.extra.untagged = map[resource.UID]string{}, map[string]bool{}
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

// withdraw marks an advisory as withdrawn by its source, or restores it.
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

// anImage returns a random image.
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

// copyOne pushes an image of one repo to another repo in any organization.
func (g *game) copyOne(t *testing.T) bool {
	t.Helper()
	from, d, ok := g.anImage()
	if !ok {
		return false
	}
	repos := slices.Sorted(maps.Keys(g.repos))
	to, word := repos[g.rng.IntN(len(repos))], g.repos[from][d]
	g.repos[to][push(t, g.Store, g.named[to], word)] = word
	delete(g.extra.untagged, string(to)+d)
	return true
}

// moveTag moves the tag "latest" of a repo to a random image.
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
	g.extra.latest[repo] = d
	return true
}

// deleteTag deletes the tag with which an image was pushed. The image is not deleted.
func (g *game) deleteTag(t *testing.T) bool {
	t.Helper()
	repo, d, ok := g.anImage()
	if !ok || g.extra.untagged[string(repo)+d] {
		return false
	}
	must(t, g.DeleteTagNamed(t.Context(), repo, "v-"+g.repos[repo][d], nil))
	g.extra.untagged[string(repo)+d] = true
	return true
}

// untag removes the tags of a deleted image from the model.
func (g *game) untag(repo resource.UID, d string) {
	delete(g.extra.untagged, string(repo)+d)
	if g.extra.latest[repo] == d {
		delete(g.extra.latest, repo)
	}
}

// tagsOf returns the tags that point to an image, joined by commas.
func (g *game) tagsOf(repo resource.UID, d, word string) string {
	var tags []string
	if g.extra.latest[repo] == d {
		tags = append(tags, "latest")
	}
	if !g.extra.untagged[string(repo)+d] {
		tags = append(tags, "v-"+word)
	}
	return strings.Join(tags, ",")
}

// addGroup creates a group below another one.
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
	g.groups, g.extra.groups = append(g.groups, uid), append(g.extra.groups, uid)
	return true
}

// deleteGroup deletes a group that was created during the game, with everything in it.
func (g *game) deleteGroup(t *testing.T) bool {
	t.Helper()
	for i, uid := range slices.Backward(g.extra.groups) {
		if slices.ContainsFunc(g.groups, func(group resource.UID) bool { return group != uid && uid.Covers(group) }) {
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
		g.extra.groups = slices.Delete(g.extra.groups, i, i+1)
		g.groups = slices.DeleteFunc(g.groups, func(group resource.UID) bool { return group == uid })
		return true
	}
	return false
}
