package registrydb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Blob returns a blob that a repo holds. It returns fault.NotFound if there is none or if its bytes are rotten.
// If the collector has marked the blob as idle, its grace period starts again, so that the caller can rely on
// it for a while.
func (s *Store) Blob(ctx context.Context, repo resource.UID, digest string) (registry.Blob, error) {
	b := registry.Blob{Digest: digest}
	var idle sql.NullInt64
	err := s.Row(ctx, `
		SELECT size, path, (SELECT idle_ms FROM repo_blobs WHERE repo = $1 AND digest = $2) FROM blobs
		WHERE digest = (SELECT digest FROM repo_blobs WHERE repo = $1 AND digest = $2) AND rotten_ms IS NULL`,
		[]any{store.Segment(repo), digest}, &b.Size, &b.Path, &idle)
	if err != nil || !idle.Valid {
		return b, store.Missing(err, "blob", resource.UID(digest))
	}
	n, err := s.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL WHERE repo = $1 AND digest = $2`, store.Segment(repo),
		digest)
	if err == nil && n == 0 {
		err = fault.Missing("blob", digest)
	}
	return b, err
}

// BlobHolders returns the UIDs of up to n repos that hold a blob.
func (s *Store) BlobHolders(ctx context.Context, digest string, n int) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows,
		`SELECT uid FROM repos WHERE seg IN (SELECT repo FROM repo_blobs WHERE digest = $1 LIMIT $2)`, digest, n)
}

// errCollected means that the collector removed a blob while it was being added to a repo.
var errCollected = errors.New("the blob was collected")

// AddBlob ends an upload and adds its blob to the repo. It reports whether b.Path is used: if it returns false, the
// same bytes are already stored elsewhere and are not rotten, so the caller can delete the file at b.Path. It returns
// fault.Aborted if the upload has ended or has another holder. If u.ID is "", there is no upload to end.
func (s *Store) AddBlob(
	ctx context.Context, ref RepoRef, u registry.Upload, holder string, b registry.Blob,
) (used bool, _ error) {
	err := s.retryCollected(ctx, func(t Tx) error {
		repo, err := t.ensureRepo(ctx, ref) // holds the repo, so its group cannot be deleted before the commit
		if err != nil {
			return err
		}
		if u.ID != "" {
			if err := t.endUpload(ctx, ref.Group, u.ID, holder); err != nil {
				return err
			}
		}
		used, err = t.addBlob(ctx, repo, b)
		return err
	})
	return used, err
}

// endUpload removes an upload session of a group. The transaction already holds the group.
func (t Tx) endUpload(ctx context.Context, group resource.UID, id, holder string) error {
	u, taken, err := t.takeUpload(ctx, `id = $1 AND holder = $2 AND grp = $3`, id, holder, string(group))
	if err != nil {
		return err
	}
	if !taken {
		return fault.New(fault.Aborted, "Aborted: the upload has ended or belongs to another request")
	}
	return t.countUpload(ctx, group, -u.Size)
}

// addBlob adds a blob to a repo that the transaction already holds. It reports whether b.Path is used.
func (t Tx) addBlob(ctx context.Context, repo resource.UID, b registry.Blob) (used bool, _ error) {
	n, err := t.Exec(ctx,
		`INSERT INTO blobs (digest, size, path, create_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (digest) DO NOTHING`,
		b.Digest, b.Size, b.Path, store.MS(t.DB.Time()))
	if err != nil {
		return false, err
	}
	if n == 1 { // the blob is new, so the collector cannot see it before the commit
		return true, t.linkHeld(ctx, repo, b.Digest, b.Size)
	}
	if used, err = t.replaceBlob(ctx, b); err != nil {
		return false, err
	}
	return used, t.link(ctx, repo, b.Digest)
}

// MountBlob adds a blob of one repo to another. It returns fault.NotFound if the first repo does not hold the
// blob, or if the blob is rotten.
func (s *Store) MountBlob(ctx context.Context, from resource.UID, ref RepoRef, digest string) error {
	return s.retryCollected(ctx, func(t Tx) error {
		var one int
		err := t.Row(ctx, `SELECT 1 FROM repo_blobs AS t WHERE t.repo = $1 AND t.digest = $2
			AND NOT EXISTS (SELECT 1 FROM blobs AS b WHERE b.digest = $2 AND b.rotten_ms IS NOT NULL)`+s.Engine.ForShare,
			[]any{store.Segment(from), digest}, &one)
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

// retryCollected runs a write. If the collector removes the blob during the write, it tries again, up to three times
// in all.
func (s *Store) retryCollected(ctx context.Context, f func(Tx) error) (err error) {
	for range 3 {
		if err = s.write(ctx, f); !errors.Is(err, errCollected) {
			return err
		}
	}
	return err
}

// link adds a blob to a repo and restarts the collector's grace period for it. It returns errCollected if the blob is
// gone.
func (t Tx) link(ctx context.Context, repo resource.UID, digest string) error {
	var size int64
	err := t.Row(ctx, `SELECT t.size FROM blobs AS t WHERE t.digest = $1`+t.DB.Engine.ForShare, []any{digest}, &size)
	if errors.Is(err, sql.ErrNoRows) {
		return errCollected
	}
	if err != nil {
		return err
	}
	return t.linkHeld(ctx, repo, digest, size)
}

// linkHeld is link for a blob whose row the transaction holds, so that the collector cannot remove it before the
// commit.
func (t Tx) linkHeld(ctx context.Context, repo resource.UID, digest string, size int64) error {
	created := store.MS(t.DB.Time())
	n, err := t.Exec(ctx, `
		INSERT INTO repo_blobs (repo, digest, create_ms) VALUES ($1, $2, $3) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), digest, created)
	if err != nil {
		return err
	}
	if n == 1 {
		return t.CountBytes(ctx, repo, size)
	}
	n, err = t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL, create_ms = $3 WHERE repo = $1 AND digest = $2`,
		store.Segment(repo), digest, created)
	if err == nil && n == 0 { // the row was removed between the two statements
		return errCollected
	}
	return err
}

// CountBytes adds by, which may be negative, to the counters of stored bytes of a repo and of the groups above it.
func (t Tx) CountBytes(ctx context.Context, repo resource.UID, by int64) error {
	if by == 0 {
		return nil
	}
	return t.Count(ctx, store.BytesCounter, repo.NewChild(), int(by))
}

// DeleteBlob removes a blob from a repo. It returns fault.NotFound if the repo does not hold it, and
// fault.FailedPrecondition if a manifest of the repo needs it. If a manifest in the trash needs it, it moves to the
// trash.
func (s *Store) DeleteBlob(ctx context.Context, repo resource.UID, digest string) error {
	return s.write(ctx, func(t Tx) error {
		var n, size int64
		err := t.Row(ctx, `SELECT (SELECT size FROM blobs WHERE digest = $2) FROM repo_blobs AS t
			WHERE t.repo = $1 AND t.digest = $2`+s.Engine.ForDelete, []any{store.Segment(repo), digest}, &size)
		if err != nil {
			return store.Missing(err, "blob", resource.UID(digest))
		}
		if err := t.Row(ctx, `SELECT count(*) FROM manifest_refs WHERE repo = $1 AND blob = $2`,
			[]any{store.Segment(repo), digest}, &n); err != nil {
			return err
		}
		if n > 0 {
			return fault.InUse("blob", "a manifest")
		}
		if _, err = t.Exec(ctx, `DELETE FROM repo_blobs WHERE repo = $1 AND digest = $2`, store.Segment(repo),
			digest); err != nil {
			return err
		}
		return t.TrashBlob(ctx, repo, digest, size)
	})
}

// BlobsAfter returns up to n blobs in the order of their digests, after a digest. Rotten blobs are included.
func (s *Store) BlobsAfter(ctx context.Context, digest string, n int) ([]registry.Blob, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b registry.Blob, err error) {
		err = row.Scan(&b.Digest, &b.Size, &b.Path, &b.Rotten)
		return b, err
	}, `SELECT digest, size, path, rotten_ms IS NOT NULL FROM blobs WHERE digest > $1 ORDER BY digest LIMIT $2`, digest, n)
}
