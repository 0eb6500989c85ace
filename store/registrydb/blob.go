package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// Blob returns a blob that a repo holds, or fault.NotFound. Who is told that it
// is there may rely on it for a while: a collector that was about to take it
// starts to wait again.
func (s *Store) Blob(ctx context.Context, repo resource.UID, digest string) (resource.Blob, error) {
	b := resource.Blob{Digest: digest}
	var idle sql.NullInt64
	err := s.Row(ctx, `
		SELECT size, path, (SELECT idle_ms FROM repo_blobs WHERE repo = $1 AND digest = $2) FROM blobs
		WHERE digest = (SELECT digest FROM repo_blobs WHERE repo = $1 AND digest = $2)`,
		[]any{store.Segment(repo), digest}, &b.Size, &b.Path, &idle)
	if err != nil || !idle.Valid {
		return b, store.Missing(err, "blob", resource.UID(digest))
	}
	return b, s.write(ctx, func(t Tx) error {
		n, err := t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL WHERE repo = $1 AND digest = $2`, store.Segment(repo), digest)
		if err == nil && n == 0 {
			return fault.Missing("blob", digest)
		}
		return err
	})
}

// BlobHolders returns up to n repos that hold a blob.
func (s *Store) BlobHolders(ctx context.Context, digest string, n int) ([]resource.UID, error) {
	var all []resource.UID
	err := s.Rows(ctx, `SELECT uid FROM repos WHERE seg IN (SELECT repo FROM repo_blobs WHERE digest = $1 LIMIT $2)`, []any{digest, n}, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		all = append(all, uid)
		return false, err
	})
	return all, err
}

// errGone says that a blob went while it was being given to a repo.
var errCollected = errors.New("the blob was collected")

// AddBlob ends the upload and gives its blob to the repo. It reports false if
// the same bytes were already stored elsewhere: then those at b.Path are
// garbage. It returns fault.Aborted if the upload has ended or has another
// holder now; an upload without an id never had one.
func (s *Store) AddBlob(ctx context.Context, ref RepoRef, u resource.Upload, holder string, b resource.Blob) (kept bool, _ error) {
	try := func(t Tx) error {
		if u.ID != "" {
			n, err := t.Exec(ctx, `DELETE FROM uploads WHERE id = $1 AND holder = $2`, u.ID, holder)
			if err != nil {
				return err
			}
			if n == 0 {
				return fault.New(fault.Aborted, "Aborted: the upload has ended or belongs to another request")
			}
		}
		n, err := t.Exec(ctx, `INSERT INTO blobs (digest, size, path, create_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (digest) DO NOTHING`,
			b.Digest, b.Size, b.Path, store.MS(s.Time()))
		if err != nil {
			return err
		}
		kept = n == 1
		repo, err := t.ensureRepo(ctx, ref)
		if err != nil {
			return err
		}
		return t.link(ctx, repo, b.Digest)
	}
	return kept, s.retryCollected(ctx, try)
}

// MountBlob gives to a repo a blob that another holds. It returns
// fault.NotFound if that one does not.
func (s *Store) MountBlob(ctx context.Context, from resource.UID, ref RepoRef, digest string) error {
	return s.retryCollected(ctx, func(t Tx) error {
		var one int
		err := t.Row(ctx, `SELECT 1 FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2`+s.Engine.Hold, []any{store.Segment(from), digest}, &one)
		if err != nil {
			return store.Missing(err, "blob", resource.UID(digest))
		}
		repo, err := t.ensureRepo(ctx, ref)
		if err != nil {
			return err
		}
		return t.link(ctx, repo, digest)
	})
}

// whileCollecting runs a write again if a collector took its blob meanwhile.
func (s *Store) retryCollected(ctx context.Context, f func(Tx) error) (err error) {
	for range 3 {
		if err = s.write(ctx, f); !errors.Is(err, errCollected) {
			return err
		}
	}
	return err
}

// link lets a repo serve a blob, and has the collector wait anew.
func (t Tx) link(ctx context.Context, repo resource.UID, digest string) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM blobs AS t WHERE t.digest = $1`+t.DB.Engine.Hold, []any{digest}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return errCollected
	}
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, `
		INSERT INTO repo_blobs (repo, digest, create_ms) VALUES ($1, $2, $3)
		ON CONFLICT (repo, digest) DO UPDATE SET idle_ms = NULL, create_ms = excluded.create_ms`, store.Segment(repo), digest, store.MS(t.DB.Time()))
	return err
}

// DeleteBlob takes a blob from a repo. It returns fault.NotFound if it is not
// there, and fault.FailedPrecondition while a manifest of the repo needs it.
func (s *Store) DeleteBlob(ctx context.Context, repo resource.UID, digest string) error {
	return s.write(ctx, func(t Tx) error {
		var n int
		err := t.Row(ctx, `SELECT 1 FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2`+s.Engine.LockKey, []any{store.Segment(repo), digest}, &n)
		if err != nil {
			return store.Missing(err, "blob", resource.UID(digest))
		}
		if err := t.Row(ctx, `SELECT count(*) FROM manifest_refs WHERE repo = $1 AND blob = $2`, []any{store.Segment(repo), digest}, &n); err != nil {
			return err
		}
		if n > 0 {
			return fault.InUse("blob", "a manifest")
		}
		_, err = t.Exec(ctx, `DELETE FROM repo_blobs WHERE repo = $1 AND digest = $2`, store.Segment(repo), digest)
		return err
	})
}

// A Held is a blob in a repo, by the repo's key: a place in the collector's
// walk.
type RepoBlob struct {
	repo   int64
	Digest string
	Marked bool // that nothing needs it was seen before
}

// Idle walks on from a place through the blobs that repos hold, and returns
// those among the next n that no manifest of their repo needs and that were
// pushed no later than then. next is where the walk goes on; it is nil at the
// end.
func (s *Store) IdleBlobs(ctx context.Context, from *RepoBlob, pushed time.Time, n int) (idle []RepoBlob, next *RepoBlob, _ error) {
	where, args := `1 = 1`, []any{n, store.MS(pushed)}
	if from != nil {
		where, args = `(t.repo, t.digest) > ($3, $4)`, append(args, from.repo, from.Digest)
	}
	seen := 0
	err := s.Rows(ctx, `
		SELECT t.repo, t.digest, t.idle_ms IS NOT NULL, t.create_ms <= $2
			AND NOT EXISTS (SELECT 1 FROM manifest_refs AS r WHERE r.repo = t.repo AND r.blob = t.digest)
		FROM repo_blobs AS t WHERE `+where+` ORDER BY t.repo, t.digest LIMIT $1`, args, func(row store.Scanner) (bool, error) {
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
			if _, err := t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = $3 WHERE repo = $1 AND digest = $2 AND idle_ms IS NULL`, h.repo, h.Digest, store.MS(at)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unlink takes from their repos up to n blobs that nothing has needed since
// before, and reports how many it looked at and took.
func (s *Store) UnlinkIdle(ctx context.Context, before time.Time, n int) (looked, took int, _ error) {
	var all []RepoBlob
	err := s.Rows(ctx, `SELECT repo, digest FROM repo_blobs WHERE idle_ms IS NOT NULL AND idle_ms <= $1 ORDER BY idle_ms LIMIT $2`, []any{store.MS(before), n}, func(row store.Scanner) (bool, error) {
		var h RepoBlob
		err := row.Scan(&h.repo, &h.Digest)
		all = append(all, h)
		return false, err
	})
	if err != nil || len(all) == 0 {
		return len(all), 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		took = 0
		for _, h := range all {
			n, err := t.unlink(ctx, h, before)
			if err != nil {
				return err
			}
			took += n
		}
		return nil
	})
	return len(all), took, err
}

// unlink takes one blob from its repo unless somebody came to need it. The row
// is locked first: a statement that waits for a lock does not see what it
// waited for.
func (t Tx) unlink(ctx context.Context, h RepoBlob, before time.Time) (int, error) {
	var idle sql.NullInt64
	err := t.Row(ctx, `SELECT t.idle_ms FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.LockKey, []any{h.repo, h.Digest}, &idle)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil || !idle.Valid || idle.Int64 > store.MS(before) {
		return 0, err
	}
	n, err := t.Exec(ctx, `
		DELETE FROM repo_blobs WHERE repo = $1 AND digest = $2
		AND NOT EXISTS (SELECT 1 FROM manifest_refs AS r WHERE r.repo = $1 AND r.blob = $2)`, h.repo, h.Digest)
	if err == nil && n == 0 {
		_, err = t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL WHERE repo = $1 AND digest = $2`, h.repo, h.Digest)
	}
	return int(n), err
}

// Unheld returns up to n blobs after the digest last that no repo holds.
func (s *Store) UnheldBlobs(ctx context.Context, last string, n int) ([]resource.Blob, error) {
	var all []resource.Blob
	err := s.Rows(ctx, `
		SELECT t.digest, t.size, t.path FROM blobs AS t
		WHERE t.digest > $1 AND NOT EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.digest = t.digest)
		ORDER BY t.digest LIMIT $2`, []any{last, n}, func(row store.Scanner) (bool, error) {
		var b resource.Blob
		err := row.Scan(&b.Digest, &b.Size, &b.Path)
		all = append(all, b)
		return false, err
	})
	return all, err
}

// Forget removes those of the blobs that still no repo holds, and returns them
// so that their bytes can go. The same content pushed again gets a path of its
// own, so that deleting these bytes cannot hurt it.
func (s *Store) DeleteUnheld(ctx context.Context, all []resource.Blob) (gone []resource.Blob, _ error) {
	err := s.write(ctx, func(t Tx) error {
		gone = nil
		for _, b := range all {
			var path string
			err := t.Row(ctx, `SELECT t.path FROM blobs AS t WHERE t.digest = $1`+s.Engine.LockKey, []any{b.Digest}, &path)
			if errors.Is(err, sql.ErrNoRows) || err == nil && path != b.Path {
				continue
			}
			if err != nil {
				return err
			}
			n, err := t.Exec(ctx, `DELETE FROM blobs WHERE digest = $1 AND NOT EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.digest = $1)`, b.Digest)
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

// Unnamed returns those of the paths that neither a blob nor an upload names.
// An upload's path ends in its id.
func (s *Store) UnreferencedPaths(ctx context.Context, paths map[string]string) (all []string, _ error) {
	for path, id := range paths {
		var n int
		err := s.Row(ctx, `SELECT (SELECT count(*) FROM blobs WHERE path = $1) + (SELECT count(*) FROM uploads WHERE id = $2)`, []any{path, id}, &n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			all = append(all, path)
		}
	}
	return all, nil
}
