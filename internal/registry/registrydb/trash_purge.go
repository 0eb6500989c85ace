package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// DeleteTrash removes an entry of the trash, which can then no longer be restored. If the entry is a repo, the
// entries for content that was deleted from the repo earlier are removed, too. It returns fault.NotFound if there is
// no such entry.
func (s *Store) DeleteTrash(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		e, err := store.Lock(ctx, t.Tx, &trash, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		return t.purge(ctx, e)
	})
}

// purge removes a locked entry and its manifests. The collector later removes the blobs.
func (t Tx) purge(ctx context.Context, e registry.TrashEntry) error {
	if e.Kind == registry.TrashRepo {
		if err := t.emitTrash(ctx, resource.TrashDeleted, e, e, nil); err != nil {
			return err
		}
		return t.DropTrash(ctx, e.Repo())
	}
	if e.Kind == registry.TrashManifest {
		if err := t.forgetTrashed(ctx, e.Repo(), e.Digest); err != nil {
			return err
		}
	}
	return t.dropTrash(ctx, e, resource.TrashDeleted)
}

// MeasureTrash returns the number of entries below a group or a repo that were deleted before a time, and the
// sum of their sizes in bytes. It returns fault.NotFound if there is no such group or repo and the trash has no
// entry below it.
func (s *Store) MeasureTrash(ctx context.Context, place resource.UID, before time.Time) (n, bytes int64, _ error) {
	below, above := Below(place)
	var exists int64
	err := s.Row(ctx, `SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT),
		(SELECT count(*) FROM `+store.GroupRows+` AS groups WHERE uid = $4) + (SELECT count(*) FROM repos WHERE uid = $4)
		FROM trash WHERE uid > $1 AND uid < $2 AND create_ms <= $3`,
		[]any{below, above, store.MS(before), string(place)}, &n, &bytes, &exists)
	if err == nil && exists+n == 0 {
		err = fault.Missing("group or repo", string(place))
	}
	return n, bytes, err
}

// EmptyTrash removes up to n entries below a group or a repo that were deleted before a time. It returns the number of
// entries that it selected, which does not include entries that are removed together with their repo.
func (s *Store) EmptyTrash(ctx context.Context, place resource.UID, before time.Time, n int) (removed int, _ error) {
	below, above := Below(place)
	return s.purgeSome(ctx, `uid > $2 AND uid < $3 AND create_ms <= $4 ORDER BY uid`, n, below, above, store.MS(before))
}

// ExpireTrash removes up to n entries that have expired, and returns their number.
func (s *Store) ExpireTrash(ctx context.Context, now time.Time, n int) (removed int, _ error) {
	return s.purgeSome(ctx, `expire_ms <= $2 ORDER BY expire_ms`, n, store.MS(now))
}

// CountExpired returns the number of entries that have expired.
func (s *Store) CountExpired(ctx context.Context, now time.Time) (n int, _ error) {
	err := s.Row(ctx, `SELECT count(*) FROM trash WHERE expire_ms <= $1`, []any{store.MS(now)}, &n)
	return n, err
}

// purgeSome removes up to n entries. where is an SQL condition with an ORDER BY clause; its first parameter is $2.
// Repos are removed last, because removing a repo also removes its other entries.
func (s *Store) purgeSome(ctx context.Context, where string, n int, args ...any) (removed int, _ error) {
	err := s.write(ctx, func(t Tx) error {
		entries, err := trash.All(ctx, t.Rows, ` WHERE t.seg IN (SELECT seg FROM trash WHERE `+where+` LIMIT $1)
			ORDER BY t.kind, t.uid`+s.Engine.ForDelete, append([]any{n}, args...)...)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := t.purge(ctx, e); err != nil {
				return err
			}
		}
		removed = len(entries)
		return nil
	})
	return removed, err
}
