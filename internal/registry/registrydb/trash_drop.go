package registrydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// DropTrash removes the trash of a repo that no longer exists. If the repo itself is in the trash, it is removed,
// too, with its counters. Nothing of it can be restored. The garbage collector removes its blobs.
func (t Tx) DropTrash(ctx context.Context, repo resource.UID) error {
	entries, err := t.Exec(ctx, `DELETE FROM trash WHERE parent = $1`, store.Segment(repo))
	if err != nil {
		return err
	}
	var bytes int64
	for _, text := range []string{
		`DELETE FROM trash_manifests WHERE repo = $1 RETURNING size`,
		`DELETE FROM trash_blobs WHERE repo = $1
			RETURNING coalesce((SELECT b.size FROM blobs AS b WHERE b.digest = trash_blobs.digest), 0)`,
	} {
		sizes, err := store.ReadColumn[int64](ctx, t.Rows, text, store.Segment(repo))
		if err != nil {
			return err
		}
		for _, size := range sizes {
			bytes += size
		}
	}
	for _, text := range []string{
		`DELETE FROM trash_refs WHERE repo = $1`, `DELETE FROM trash_tags WHERE parent = $1`,
		`DELETE FROM trash_tag_history WHERE repo = $1`, `DELETE FROM trash_repos WHERE seg = $1`,
	} {
		if _, err := t.Exec(ctx, text, store.Segment(repo)); err != nil {
			return err
		}
	}
	// The retention rules of a repo in the trash are kept for a restore.
	if _, err := t.Exec(ctx, `DELETE FROM retention WHERE uid = $1`, string(repo)); err != nil {
		return err
	}
	if err := t.Count(ctx, store.TrashCounter, repo.NewChild(), -int(entries)); err != nil {
		return err
	}
	if err := t.Count(ctx, store.BytesCounter, repo.NewChild(), -int(bytes)); err != nil {
		return err
	}
	return t.DropCounters(ctx, repo)
}
