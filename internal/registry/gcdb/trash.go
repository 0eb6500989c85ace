package gcdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// TrashNeeds reports whether the trash of any repo needs a blob.
func (s *Store) TrashNeeds(ctx context.Context, digest string) (bool, error) {
	var n int
	err := s.Row(ctx, `SELECT (SELECT count(*) FROM trash_blobs WHERE digest = $1)
		+ (SELECT count(*) FROM repo_blobs AS b JOIN trash_refs AS r ON r.repo = b.repo AND r.blob = b.digest
		WHERE b.digest = $1)`, []any{digest}, &n)
	return n > 0, err
}

// SweepTrashBlobs removes up to n blobs from the trash that nothing in the trash needs, or that are in their repo
// again and counted there. It returns how many it removed.
func (s *Store) SweepTrashBlobs(ctx context.Context, n int) (removed int, _ error) {
	type blob struct {
		repo   resource.UID
		digest string
	}
	blobs, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b blob, err error) {
		err = row.Scan(&b.repo, &b.digest)
		return b, err
	}, `SELECT t.uid, t.digest FROM trash_blobs AS t
		WHERE NOT EXISTS (SELECT 1 FROM trash_refs AS r WHERE r.repo = t.repo AND r.blob = t.digest)
		OR EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.repo = t.repo AND r.digest = t.digest) LIMIT $1`, n)
	if err != nil || len(blobs) == 0 {
		return 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		removed = 0
		for _, b := range blobs {
			n, err := t.sweepBlob(ctx, b.repo, b.digest)
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	return removed, err
}

// sweepBlob removes a blob from the trash, unless the trash needs it now and its repo does not have it. If the
// repo has the blob, sweepBlob holds it there first, so that no other transaction moves it to the trash at the
// same time and finds the row that sweepBlob is about to delete.
func (t Tx) sweepBlob(ctx context.Context, repo resource.UID, digest string) (int, error) {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForShare,
		[]any{store.Segment(repo), digest}, &one)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	unneeded := ``
	if err != nil {
		unneeded = ` AND NOT EXISTS (SELECT 1 FROM trash_refs AS r WHERE r.repo = $1 AND r.blob = $2)`
	}
	sizes, err := store.ReadColumn[int64](ctx, t.Rows, `DELETE FROM trash_blobs
		WHERE repo = $1 AND digest = $2`+unneeded+`
		RETURNING coalesce((SELECT b.size FROM blobs AS b WHERE b.digest = trash_blobs.digest), 0)`,
		store.Segment(repo), digest)
	if err != nil || len(sizes) == 0 {
		return 0, err
	}
	return 1, registrydb.In(t.Tx).CountBytes(ctx, repo, -sizes[0])
}
