package query_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestCoverageOfNewImages checks that the packages of a new image are added to the counts, each version once, and that
// the packages of a deleted image no longer count.
func TestCoverageOfNewImages(t *testing.T) {
	t.Parallel()
	eachGame(t, func(t *testing.T, g *game) {
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		repo, reach := g.aRepo(t, g.groups[0], "app"), []resource.UID{g.groups[0]}
		check := func(images int) {
			t.Helper()
			set, err := g.ImagesIn(ctx, reach)
			must(t, err)
			ids, err := g.PackagesOf(ctx, set)
			must(t, err)
			c, err := g.service.CoverageOf(ctx, reach, false)
			must(t, err)
			if c.Packages.Packages != len(ids) || c.Images != images || len(ids) == 0 != (images == 0) {
				t.Errorf("%d packages, want %d; %d images, want %d", c.Packages.Packages, len(ids), c.Images, images)
			}
		}
		check(0)
		var last string
		for i := range 8 {
			last = push(t, g.Store, repo, fmt.Sprintf("%c%d", 'a'+i/2, i%2))
			g.settle(t)
			check(i + 1)
		}
		must(t, g.DeleteManifest(ctx, repo.UID, last, nil))
		check(7)
	})
}
