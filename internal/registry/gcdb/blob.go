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

// A RepoBlob is a blob in a repo. The collector reads all blobs of repos, ordered by repo and digest.
type RepoBlob struct {
	repo   int64
	Digest string
	Marked bool // whether MarkIdle has marked the blob
}

// IdleBlobs reads n blobs of repos after from, or the first n if from is nil. It returns those that no manifest of
// their repo needs and that were pushed no later than pushed. next is the value of from for the next call; it is nil
// at the end.
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

// MarkIdle stores seen as the time from which the blobs are idle. It does not change blobs that are already marked.
func (s *Store) MarkIdle(ctx context.Context, idle []RepoBlob, seen time.Time) error {
	return s.write(ctx, func(t Tx) error {
		for _, h := range idle {
			if h.Marked {
				continue
			}
			if _, err := t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = $3
				WHERE repo = $1 AND digest = $2 AND idle_ms IS NULL`,
				h.repo, h.Digest, store.MS(seen)); err != nil {
				return err
			}
		}
		return nil
	})
}

// UnlinkIdle examines up to n blobs that have been idle since before a time, and removes them from their repos unless
// a manifest needs them now. It returns how many it examined and how many it removed.
func (s *Store) UnlinkIdle(ctx context.Context, before time.Time, n int) (examined, removed int, _ error) {
	idle, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (h RepoBlob, err error) {
		err = row.Scan(&h.repo, &h.Digest)
		return h, err
	}, `SELECT repo, digest FROM repo_blobs WHERE idle_ms IS NOT NULL AND idle_ms <= $1 ORDER BY idle_ms LIMIT $2`,
		store.MS(before), n)
	if err != nil || len(idle) == 0 {
		return len(idle), 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		removed = 0
		for _, h := range idle {
			n, err := t.unlink(ctx, h, before)
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	return len(idle), removed, err
}

// unlink removes a blob from its repo, unless a manifest needs it now. It returns the number of removed rows.
// It locks the row with a separate statement, because a statement that waits for a lock does not see the rows
// that the other transaction has written.
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

// UnheldBlobs returns up to n blobs, in the order of their digests after last, that neither a repo nor its
// trash holds.
func (s *Store) UnheldBlobs(ctx context.Context, last string, n int) ([]registry.Blob, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b registry.Blob, err error) {
		err = row.Scan(&b.Digest, &b.Size, &b.Path)
		return b, err
	}, `SELECT t.digest, t.size, t.path FROM blobs AS t
		WHERE t.digest > $1 AND NOT EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.digest = t.digest)
		AND NOT EXISTS (SELECT 1 FROM trash_blobs AS r WHERE r.digest = t.digest)
		ORDER BY t.digest LIMIT $2`, last, n)
}

// PurgeUnheld removes the blobs that neither a repo nor its trash holds, and returns the removed blobs. The caller
// then deletes their files. This is safe even if the same content is pushed again, because the new blob has another
// path.
func (s *Store) PurgeUnheld(ctx context.Context, unheld []registry.Blob) (gone []registry.Blob, _ error) {
	err := s.write(ctx, func(t Tx) error {
		gone = nil
		for _, b := range unheld {
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

// UnreferencedPaths returns the paths that belong neither to a blob nor to an upload. The keys of the map are the
// paths. The value of a path is the ID of the upload to which it would belong, because the path of an upload ends in
// its ID.
func (s *Store) UnreferencedPaths(ctx context.Context, paths map[string]string) (unreferenced []string, _ error) {
	for path, id := range paths {
		var n int
		err := s.Row(ctx, `SELECT (SELECT count(*) FROM blobs WHERE path = $1) + (SELECT count(*) FROM uploads
			WHERE id = $2)`, []any{path, id}, &n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			unreferenced = append(unreferenced, path)
		}
	}
	return unreferenced, nil
}

// EndedUploads returns the paths of uploads that no longer exist. The map has the ID of the upload for each path.
func (s *Store) EndedUploads(ctx context.Context, paths map[string]string) (ended []string, _ error) {
	for path, id := range paths {
		var n int
		if err := s.Row(ctx, `SELECT count(*) FROM uploads WHERE id = $1`, []any{id}, &n); err != nil {
			return nil, err
		}
		if n == 0 {
			ended = append(ended, path)
		}
	}
	return ended, nil
}
