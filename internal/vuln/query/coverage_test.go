package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// TestCoverageOfNewImages checks that the packages of a new image are added to the counts, each version once, and that
// the packages of a deleted image no longer count.
func TestCoverageOfNewImages(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
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

// TestCoverageOfTheBacklog checks that answers say since when images wait, and until when, if that is known.
func TestCoverageOfTheBacklog(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		start := time.Now().UTC().Truncate(time.Second)
		now := start
		for _, r := range g.replicas {
			r.Now = func() time.Time { return now }
		}
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		repo := g.aRepo(t, g.groups[0], "app")
		check := func(waiting int, oldest, end time.Time) {
			t.Helper()
			_, listed, err := g.service.ListGroup(ctx, query.Place{Group: repo.UID}, query.Filter{}, page.Params{})
			must(t, err)
			_, sum, err := g.service.Summarize(ctx, query.Place{Group: g.groups[0]}, 1, page.Params{})
			must(t, err)
			whole, err := g.service.CoverageOf(ctx, []resource.UID{g.groups[0]}, true)
			must(t, err)
			for what, c := range map[string]query.AnswerCoverage{"list": listed, "summary": sum.Coverage, "images": whole} {
				if c.Waiting != waiting || !c.Oldest.Equal(oldest) || !c.End.Equal(end) {
					t.Errorf("%s: %d images wait since %v until %v, want %d, %v, %v", what, c.Waiting, c.Oldest, c.End, waiting,
						oldest, end)
				}
			}
		}
		check(0, time.Time{}, time.Time{})
		for _, word := range []string{"a0", "b0", "c0"} {
			push(t, g.Store, repo, word)
			now = now.Add(10 * time.Second)
		}
		check(3, start, time.Time{})
		q, ok, err := imagedb.New(g.DB).ReserveImage(t.Context(), nil, time.Millisecond)
		if err != nil || !ok {
			t.Fatal("no image is due", err)
		}
		now = now.Add(10 * time.Second)
		check(3, start, now.Add(30*time.Second))
		must(t, imagedb.New(g.DB).PostponeImage(t.Context(), q, 0, ""))
		g.settle(t)
		check(0, time.Time{}, time.Time{})
	})
}

// TestCoverageOfOneImage checks that the list of packages, the VEX document and the counts of a group say how much was
// compared, so that an empty document does not look the same if nothing is known, and that the images of others do not
// count.
func TestCoverageOfOneImage(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		repo := g.aRepo(t, g.groups[0], "app")
		image := finding.Image{Repo: repo.UID, Reference: push(t, g.Store, repo, "a0")}
		g.settle(t)
		check := func(extent query.Extent, covered bool, tooling string) {
			t.Helper()
			_, listed, err := g.service.ListPackages(ctx, image, page.Params{})
			must(t, err)
			text, details, err := g.service.ExportVEX(ctx, image)
			must(t, err)
			whole, err := g.service.Coverage(ctx, true, g.groups[0])
			must(t, err)
			for what, c := range map[string]query.AnswerCoverage{"packages": listed, "VEX": details.Answer, "group": whole} {
				if c.Extent != extent || c.Images != 1 || c.Packages.Packages == 0 || (c.Packages.Covered > 0) != covered {
					t.Errorf("the coverage of the %s is %+v", what, c)
				}
			}
			var doc struct {
				Tooling    string
				Statements []any
			}
			must(t, json.Unmarshal(text, &doc))
			if len(doc.Statements) > 0 || !strings.HasPrefix(doc.Tooling, "holdfast; "+tooling) {
				t.Errorf("the document has %d statements, and the tooling %q", len(doc.Statements), doc.Tooling)
			}
		}
		check(query.ExtentNothing, false, "nothing was compared with advisories: packages ")
		g.imports(t, g.groups[0], affecting("GHSA-1", "1.0.0"))
		check(query.ExtentEverything, true, "everything was compared with advisories: packages ")
		others, err := g.service.Coverage(authz.WithCaller(t.Context(), g.callers["owner of b"]), true, g.groups[0])
		must(t, err)
		if others.Images != 0 || others.Packages.Packages != 0 || others.Extent != query.ExtentNothing {
			t.Errorf("somebody else sees the coverage %+v", others)
		}
	})
}

// TestCountContinues checks that a count that takes longer than its request is completed, and that one that takes too
// long is stopped.
func TestCountContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		counted := 0
		_, err := query.UntilDone(ctx, time.Minute, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(30 * time.Second):
				counted = 7
			case <-ctx.Done():
			}
			return counted, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || counted != 0 {
			t.Errorf("the request got %v, with %d", err, counted)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if counted != 7 {
			t.Error("counting ended with the request")
		}
		got, err := query.UntilDone(t.Context(), time.Minute, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 8, ctx.Err()
		})
		if got != 8 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a count without end returned %d, %v", got, err)
		}
	})
}
