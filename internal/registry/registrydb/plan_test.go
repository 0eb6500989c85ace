package registrydb

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
)

// TestPlans checks that the statements of pushes and pulls use the expected indexes, in four repos with a thousand
// manifests each.
func TestPlans(t *testing.T) {
	var repo resource.UID
	insert := func(db *store.DB) {
		org := resource.NewRoot()
		plantest.Insert(t, db, "groups", append(store.TreeColumns(org), "org", "", false, 0, 0, 0))
		for r := range 4 {
			repo = org.NewChild()
			plantest.Insert(t, db, "repos", append(store.TreeColumns(repo), fmt.Sprintf("repo %d", r), "", "{}", "", 0, 0))
			var rows [][]any
			for i := range 1000 {
				rows = append(rows, []any{store.Segment(repo), fmt.Sprintf("d%d", i), "", 0, "", "", "", 0, []byte{}})
			}
			plantest.Insert(t, db, "manifests", rows...)
			var images [][]any
			for i := range 1000 {
				images = append(images, []any{
					store.Segment(repo), fmt.Sprintf("d%d", i), store.Segment(org), string(repo), nil, 0, "", 0, 0, 0, nil, 0,
				})
			}
			plantest.Insert(t, db, "images", images...)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		plantest.SQLite(t, insert, func(*store.DB) []plantest.Shape {
			return needed(repo)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		plantest.Postgres(t, insert, func(*store.DB) []plantest.Shape { return slices.Concat(needed(repo), pulled()) })
	})
}

// needed returns the statements by which a push looks up the blobs and manifests that its manifest needs, with the
// indexes that they may use. For a single blob, PostgreSQL may use either index while the table is empty.
func needed(repo resource.UID) (all []plantest.Shape) {
	for _, n := range []int{1, 3, 64} {
		blobs := "repo_blobs_pkey sqlite_autoindex_repo_blobs_1"
		if n == 1 {
			blobs += " repo_blobs_digest"
		}
		manifests := "manifests_pkey manifests_digest sqlite_autoindex_manifests_1"
		for table, index := range map[string]string{"repo_blobs": blobs, "manifests": manifests} {
			text, args := selectHeld(table, repo, slices.Repeat([]string{"d"}, n))
			all = append(all, plantest.Shape{Name: fmt.Sprintf("%d of %s", n, table), Index: index, Text: text, Args: args})
		}
	}
	return all
}

// pulled returns the statements of a pull, with the indexes that they may use.
func pulled() (all []plantest.Shape) {
	const index = "manifests_pkey manifests_digest"
	all = append(all, plantest.Shape{
		Name: "pulls of several", Index: index, Text: selectManifests,
		Args: []any{[]int64{1, 2}, []string{"v1", "sha256:1"}, []bool{true, false}, maxBatchedBody},
	})
	for _, reference := range []string{"v1", "sha256:1"} {
		text, args := manifestOf(resource.NewRoot().NewChild(), reference, true)
		all = append(all, plantest.Shape{Name: "a pull of " + reference, Index: index, Text: text, Args: args})
	}
	return all
}
