package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Blob returns a blob that a repo holds, or fault.NotFound, also if its bytes are rotten. A caller may rely on it
// for a while: if the collector had marked it as idle, its grace begins anew.
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

// BlobHolders returns up to n repos that hold a blob.
func (s *Store) BlobHolders(ctx context.Context, digest string, n int) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows,
		`SELECT uid FROM repos WHERE seg IN (SELECT repo FROM repo_blobs WHERE digest = $1 LIMIT $2)`, digest, n)
}

// errCollected says that a blob was collected while it was being added to a repo.
var errCollected = errors.New("the blob was collected")

// AddBlob ends the upload and adds its blob to the repo. It reports whether b.Path
// is used: if the same bytes were stored elsewhere already, and are not rotten, those at b.Path are
// garbage. It returns fault.Aborted if the upload has ended or has another
// holder now; an upload without an id never had one.
func (s *Store) AddBlob(
	ctx context.Context, ref RepoRef, u registry.Upload, holder string, b registry.Blob,
) (used bool, _ error) {
	err := s.retryCollected(ctx, func(t Tx) error {
		repo, err := t.ensureRepo(ctx, ref) // whose group cannot go before it
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

// endUpload ends a session of a group that is held until the commit.
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

// addBlob adds a blob to a repo that is held until the commit. It reports whether b.Path is used.
func (t Tx) addBlob(ctx context.Context, repo resource.UID, b registry.Blob) (used bool, _ error) {
	n, err := t.Exec(ctx,
		`INSERT INTO blobs (digest, size, path, create_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (digest) DO NOTHING`,
		b.Digest, b.Size, b.Path, store.MS(t.DB.Time()))
	if err != nil {
		return false, err
	}
	if n == 1 { // nobody else sees it before the commit
		return true, t.linkHeld(ctx, repo, b.Digest, b.Size)
	}
	if used, err = t.replaceBlob(ctx, b); err != nil {
		return false, err
	}
	return used, t.link(ctx, repo, b.Digest)
}

// MountBlob adds to a repo a blob that another one holds. It returns fault.NotFound
// if that one does not, or if the blob is rotten.
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

// retryCollected runs a write again if the collector removed its blob meanwhile.
func (s *Store) retryCollected(ctx context.Context, f func(Tx) error) (err error) {
	for range 3 {
		if err = s.write(ctx, f); !errors.Is(err, errCollected) {
			return err
		}
	}
	return err
}

// link adds a blob to a repo; the grace of the collector begins anew.
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

// linkHeld is link for a blob that cannot be collected before the commit.
func (t Tx) linkHeld(ctx context.Context, repo resource.UID, digest string, size int64) error {
	now := store.MS(t.DB.Time())
	n, err := t.Exec(ctx, `
		INSERT INTO repo_blobs (repo, digest, create_ms) VALUES ($1, $2, $3) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), digest, now)
	if err != nil {
		return err
	}
	if n == 1 {
		return t.countBytes(ctx, repo, size)
	}
	n, err = t.Exec(ctx, `UPDATE repo_blobs SET idle_ms = NULL, create_ms = $3 WHERE repo = $1 AND digest = $2`,
		store.Segment(repo), digest, now)
	if err == nil && n == 0 { // it was there, and is no more
		return errCollected
	}
	return err
}

// countBytes adds to the counters of stored bytes of a repo and the groups above it.
func (t Tx) countBytes(ctx context.Context, repo resource.UID, by int64) error {
	if by == 0 {
		return nil
	}
	return t.Count(ctx, store.BytesCounter, repo.NewChild(), int(by))
}

// DeleteBlob removes a blob from a repo. It returns fault.NotFound if it is not
// there, and fault.FailedPrecondition while a manifest of the repo needs it. If one in the
// trash needs it, it is kept there.
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
		return t.trashBlob(ctx, repo, digest, size)
	})
}

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
		err = t.trashBlob(ctx, repo, h.Digest, size)
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

// BlobsAfter returns up to n blobs whose digests come after one, in their order, rotten ones too.
func (s *Store) BlobsAfter(ctx context.Context, digest string, n int) ([]registry.Blob, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b registry.Blob, err error) {
		err = row.Scan(&b.Digest, &b.Size, &b.Path, &b.Rotten)
		return b, err
	}, `SELECT digest, size, path, rotten_ms IS NOT NULL FROM blobs WHERE digest > $1 ORDER BY digest LIMIT $2`, digest, n)
}
