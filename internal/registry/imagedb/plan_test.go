package imagedb

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
)

// TestPlans checks that the statements about images use the expected indexes, in four repos with a thousand images
// each.
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
		plantest.SQLite(t, insert, func(db *store.DB) []plantest.Shape {
			return append(searched(repo), tagged(db))
		})
	})
	t.Run("postgres", func(t *testing.T) {
		plantest.Postgres(t, insert, func(*store.DB) []plantest.Shape { return searched(repo) })
	})
}

// searched returns the statements of a search for digests with a prefix, with the indexes that they must use.
func searched(repo resource.UID) (all []plantest.Shape) {
	add := func(name, index string, args []any, text string) {
		all = append(all, plantest.Shape{Name: name, Index: index, Text: text, Args: args})
	}
	args, text := imagesBeginning(store.Segment(repo.Root()), "d7")
	add("images of an organization", "images_root_digest", args, text)
	args, text = nextDigest("d7", "d7", false)
	add("the next digest", "manifests_digest", args, text)
	args, text = holdersOf("d7")
	add("repos with a digest", "manifests_digest", args, text)
	return all
}

// tagged returns the statement that reads the tags of images, with the index that it must use. Without it, the
// statement would be slow for a repo with many tags.
func tagged(db *store.DB) plantest.Shape {
	text, args := selectImageTags(db.Engine, []int64{1, 2, 3})
	return plantest.Shape{Name: "tags of images", Index: "tags_parent_digest", Text: text, Args: args}
}
