package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// TestPlacesOfOthers checks that queries return nothing for a UID that combines a caller's own group with the last
// segment of a group or repo in another organization.
func TestPlacesOfOthers(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		now := time.Now().UTC().Truncate(time.Millisecond)
		folder := g.sees["of a folder"][0] // a folder in organization a
		repo := registry.Repo{UID: folder.NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, g.InsertRepo(t.Context(), repo))
		push(t, g.Store, repo, "a0")
		g.settle(t)
		purl := strings.SplitN(contents("a0", 1)[0].Purl, "@", 2)[0]
		search := func(who string, place resource.UID) int64 {
			got, err := g.service.Search(authz.WithCaller(t.Context(), g.callers[who]), purl, "", query.Place{Group: place},
				page.Params{})
			must(t, err)
			return got.Total
		}
		for _, place := range []resource.UID{g.groups[0], folder, repo.UID} {
			if n := search("owner of a", place); n != 1 {
				t.Errorf("the owner finds %d images in %s", n, place)
			}
			stolen := g.groups[1] + "/" + resource.UID(place[strings.LastIndexByte(string(place), '/')+1:])
			if n := search("owner of b", stolen); n != 0 {
				t.Errorf("the owner of b finds %d images in %s", n, stolen)
			}
		}
	})
}
