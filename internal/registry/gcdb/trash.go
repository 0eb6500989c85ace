package gcdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
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

// SweepTrash removes rows of the trash that nobody can restore: entries of repos and groups that an older
// version of the server deleted for good, blobs that nothing in the trash needs, and blobs that are in their
// repo again. It reads up to n of each, and returns how many it removed.
func (s *Store) SweepTrash(ctx context.Context, n int) (removed int, _ error) {
	lost, err := store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT t.uid FROM trash_repos AS t
		WHERE NOT EXISTS (SELECT 1 FROM groups AS g WHERE g.seg = t.parent) LIMIT $1`, n)
	if err != nil {
		return 0, err
	}
	entries, err := store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT t.uid FROM trash AS t
		WHERE NOT EXISTS (SELECT 1 FROM repos AS r WHERE r.seg = t.parent)
		AND NOT EXISTS (SELECT 1 FROM trash_repos AS r WHERE r.seg = t.parent) LIMIT $1`, n)
	if err != nil {
		return 0, err
	}
	for _, uid := range entries {
		lost = append(lost, uid.Parent())
	}
	for _, repo := range lost {
		gone, err := s.sweepRepo(ctx, repo)
		if err != nil {
			return removed, err
		}
		removed += gone
	}
	blobs, err := s.sweepBlobs(ctx, n)
	return removed + blobs, err
}

// sweepRepo removes the trash of a repo, unless its group exists and the repo exists or is in the trash. It
// returns 1 if it removed the trash, and otherwise 0.
func (s *Store) sweepRepo(ctx context.Context, repo resource.UID) (removed int, _ error) {
	err := s.write(ctx, func(t Tx) error {
		removed = 0
		noGroup := t.RequireGroup(ctx, repo.Parent())
		if noGroup != nil && !errors.Is(noGroup, fault.NotFound) {
			return noGroup
		}
		var repos int
		if err := t.Row(ctx, `SELECT (SELECT count(*) FROM repos WHERE seg = $1)
			+ (SELECT count(*) FROM trash_repos WHERE seg = $1)`, []any{store.Segment(repo)}, &repos); err != nil {
			return err
		}
		if noGroup == nil && repos > 0 {
			return nil
		}
		removed = 1
		if err := registrydb.In(t.Tx).DropTrash(ctx, repo); err != nil {
			return err
		}
		return t.dropGoneCounters(ctx, repo)
	})
	return removed, err
}

// dropGoneCounters removes the counters of groups above a repo that do not exist any longer.
func (t Tx) dropGoneCounters(ctx context.Context, repo resource.UID) error {
	for _, g := range repo.Ancestors() {
		err := t.RequireGroup(ctx, g)
		if errors.Is(err, fault.NotFound) {
			err = t.DropCounters(ctx, g)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepBlobs removes blobs from the trash that nothing in the trash needs, or that are in their repo again,
// where they are counted.
func (s *Store) sweepBlobs(ctx context.Context, n int) (removed int, _ error) {
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
