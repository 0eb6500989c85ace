package gcdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A RepoBlob is a blob in a repo. The collector walks through them in order.
type RepoBlob struct {
	repo   int64
	Digest string
	Marked bool // MarkIdle has marked it
}

// IdleBlobs looks at the n blobs of repos that follow from, or at the first ones,
// and returns those that no manifest of their repo needs and that were not pushed
// after pushed. next is where to go on; it is nil at the end.
func (s *Store) IdleBlobs(
	ctx context.Context, from *RepoBlob, pushed time.Time, n int,
) (idle []RepoBlob, next *RepoBlob, _ error) {
	where, args := `1 = 1`, []any{n, store.MS(pushed)}
	if from != nil {
		where, args = `(t.repo, t.digest) > ($3, $4)`, append(args, from.repo, from.Digest)
	}
	seen := 0
	err := s.Rows(ctx, `
		SELECT t.repo, t.digest, t.idle_ms IS NOT NULL, t.create_ms <= $2
			AND NOT EXISTS (SELECT 1 FROM manifest_refs AS r WHERE r.repo = t.repo AND r.blob = t.digest)
		FROM repo_blobs AS t WHERE `+where+` ORDER BY t.repo, t.digest LIMIT $1`, args,
		func(row store.Scanner) (bool, error) {
			var h RepoBlob
			var unused bool
			err := row.Scan(&h.repo, &h.Digest, &h.Marked, &unused)
			if unused {
				idle = append(idle, h)
			}
			seen++
			next = &h
			return false, err
		})
	if seen < n {
		next = nil
	}
	return idle, next, err
}

// MarkIdle notes on blobs that nothing needs when that was first seen.
func (s *Store) MarkIdle(ctx context.Context, all []RepoBlob, at time.Time) error {
	return s.write(ctx, func(t Tx) error {
		for _, h := range all {
			if h.Marked {
				continue
			}
			if _, err := t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = $3 WHERE repo = $1 AND digest = $2 AND idle_ms IS NULL`,
				h.repo, h.Digest, store.MS(at)); err != nil {
				return err
			}
		}
		return nil
	})
}

// UnlinkIdle removes from their repos up to n blobs that nothing has needed since
// before. It returns how many it examined and how many it removed.
func (s *Store) UnlinkIdle(ctx context.Context, before time.Time, n int) (examined, removed int, _ error) {
	all, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (h RepoBlob, err error) {
		err = row.Scan(&h.repo, &h.Digest)
		return h, err
	}, `SELECT repo, digest FROM repo_blobs WHERE idle_ms IS NOT NULL AND idle_ms <= $1 ORDER BY idle_ms LIMIT $2`,
		store.MS(before), n)
	if err != nil || len(all) == 0 {
		return len(all), 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		removed = 0
		for _, h := range all {
			n, err := t.unlink(ctx, h, before)
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	return len(all), removed, err
}

// unlink removes one blob from its repo unless something needs it by now. It locks
// the row first, because a statement that waits for a lock does not see what the
// other transaction has written.
func (t Tx) unlink(ctx context.Context, h RepoBlob, before time.Time) (int, error) {
	var idle sql.NullInt64
	var repo resource.UID
	var size int64
	err := t.Row(ctx, `
		SELECT t.idle_ms, (SELECT uid FROM repos WHERE seg = $1), (SELECT size FROM blobs WHERE digest = $2)
		FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForDelete,
		[]any{h.repo, h.Digest}, &idle, &repo, &size)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil || !idle.Valid || idle.Int64 > store.MS(before) {
		return 0, err
	}
	n, err := t.Exec(ctx, `
		DELETE FROM repo_blobs WHERE repo = $1 AND digest = $2
		AND NOT EXISTS (SELECT 1 FROM manifest_refs AS r WHERE r.repo = $1 AND r.blob = $2)`, h.repo, h.Digest)
	switch {
	case err != nil:
	case n == 0:
		_, err = t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL WHERE repo = $1 AND digest = $2`, h.repo, h.Digest)
	default:
		err = registrydb.In(t.Tx).TrashBlob(ctx, repo, h.Digest, size)
	}
	return int(n), err
}

// UnheldBlobs returns up to n blobs after the digest last that neither a repo nor the trash of one holds.
func (s *Store) UnheldBlobs(ctx context.Context, last string, n int) ([]registry.Blob, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b registry.Blob, err error) {
		err = row.Scan(&b.Digest, &b.Size, &b.Path)
		return b, err
	}, `SELECT t.digest, t.size, t.path FROM blobs AS t
		WHERE t.digest > $1 AND NOT EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.digest = t.digest)
		AND NOT EXISTS (SELECT 1 FROM trash_blobs AS r WHERE r.digest = t.digest)
		ORDER BY t.digest LIMIT $2`, last, n)
}

// PurgeUnheld removes those of the blobs that nothing holds even now, and returns
// them so that the caller can delete their bytes. The same content pushed again
// gets another path, so deleting these bytes cannot harm it.
func (s *Store) PurgeUnheld(ctx context.Context, all []registry.Blob) (gone []registry.Blob, _ error) {
	err := s.write(ctx, func(t Tx) error {
		gone = nil
		for _, b := range all {
			var path string
			err := t.Row(ctx, `SELECT t.path FROM blobs AS t WHERE t.digest = $1`+s.Engine.ForDelete, []any{b.Digest}, &path)
			if errors.Is(err, sql.ErrNoRows) || err == nil && path != b.Path {
				continue
			}
			if err != nil {
				return err
			}
			n, err := t.Exec(ctx,
				`DELETE FROM blobs WHERE digest = $1 AND NOT EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.digest = $1)
				AND NOT EXISTS (SELECT 1 FROM trash_blobs AS r WHERE r.digest = $1)`, b.Digest)
			if err != nil {
				return err
			}
			if n == 1 {
				gone = append(gone, b)
			}
		}
		return nil
	})
	return gone, err
}

// UnreferencedPaths returns those of the paths that belong neither to a blob nor to
// an upload. The values are the ids of uploads: an upload's path ends in its id.
func (s *Store) UnreferencedPaths(ctx context.Context, paths map[string]string) (all []string, _ error) {
	for path, id := range paths {
		var n int
		err := s.Row(ctx, `SELECT (SELECT count(*) FROM blobs WHERE path = $1) + (SELECT count(*) FROM uploads
			WHERE id = $2)`, []any{path, id}, &n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			all = append(all, path)
		}
	}
	return all, nil
}

// EndedUploads returns those of the paths whose values are not the id of an upload.
func (s *Store) EndedUploads(ctx context.Context, paths map[string]string) (all []string, _ error) {
	for path, id := range paths {
		var n int
		if err := s.Row(ctx, `SELECT count(*) FROM uploads WHERE id = $1`, []any{id}, &n); err != nil {
			return nil, err
		}
		if n == 0 {
			all = append(all, path)
		}
	}
	return all, nil
}
