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
			var refs, tags, history [][]any
			for i := range 500 {
				refs = append(refs, []any{store.Segment(repo), fmt.Sprintf("d%d", 500+i), nil, fmt.Sprintf("d%d", i)})
				tag := repo.NewChild()
				tags = append(tags, append(store.TreeColumns(tag), fmt.Sprintf("t%d", i), fmt.Sprintf("d%d", 500+i), 0, false,
					"", 0, 0))
				history = append(history, []any{store.Segment(repo), fmt.Sprintf("t%d", i), fmt.Sprintf("d%d", i), "", i})
			}
			plantest.Insert(t, db, "manifest_refs", refs...)
			plantest.Insert(t, db, "tags", tags...)
			if err := db.Write(t.Context(), func(x *store.Tx) error {
				return x.InsertRows(t.Context(), `INSERT INTO tag_history (repo, name, digest, actor, at_ms)`, history, ``)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		plantest.SQLite(t, insert, func(db *store.DB) []plantest.Shape {
			return append(searched(repo), tagged(db, repo)...)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		plantest.Postgres(t, insert, func(db *store.DB) []plantest.Shape {
			return append(searched(repo), tagged(db, repo)...)
		})
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

// tagged returns the statements that read the tags of images and the images of tags, with the indexes that they must
// use. Without these, a statement would be slow for a repo with many tags or indexes.
func tagged(db *store.DB, repo resource.UID) (all []plantest.Shape) {
	add := func(name, text string, args []any, indexes ...string) {
		for _, index := range indexes {
			all = append(all, plantest.Shape{Name: name, Index: index, Text: text, Args: args, Sort: true})
		}
	}
	numbers, digests := []int64{1, 2, 3}, []string{"d1", "d2"}
	text, args := selectImageTags(db.Engine, numbers)
	add("tags of images", text, args, "images_number", "manifest_refs_child", "tags_parent_digest")
	text, args = selectTagsOfImages(db.Engine, numbers)
	add("tags in a blast radius", text, args, "images_number", "manifest_refs_child", "tags_parent_digest")
	text, args = selectTagsOf(db.Engine, repo, digests)
	add("tags of manifests", text, args, "manifest_refs_child", "tags_parent_digest")
	text, args = selectPastTags(db.Engine, numbers)
	add("past tags of images", text, args, "images_number", "manifest_refs_child", "tag_history_digest")
	text, args = selectPeriodsOf(db.Engine, repo, []string{"t1"})
	add("periods of tags", text, args, "tag_history_name")
	q := store.Query{Engine: db.Engine}
	text = selectListedImages(db.Engine, &q, numbers)
	add("images of tags", text, q.Args, "manifest_refs_digest")
	q = store.Query{Engine: db.Engine}
	text = selectPeriodImages(db.Engine, &q, numbers)
	add("images of periods", text, q.Args, "manifest_refs_digest")
	return all
}
