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

// DeleteTrash removes an entry of the trash: what it is can no longer be restored. With a repo goes everything that was
// deleted from it before. It returns fault.NotFound if there is no such entry.
func (s *Store) DeleteTrash(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		e, err := store.Lock(ctx, t.Tx, &trash, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		return t.purge(ctx, e)
	})
}

// purge removes an entry that is locked, and its content. The blobs are left to the collector.
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

// MeasureTrash returns how many entries there are below a group or a repo that were deleted before a time, and the sum of
// their sizes. It returns fault.NotFound if there is no such place, and nothing in the trash of it.
func (s *Store) MeasureTrash(ctx context.Context, place resource.UID, before time.Time) (n, bytes int64, _ error) {
	below, above := beneath(place)
	var there int64
	err := s.Row(ctx, `SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT), (SELECT count(*) FROM groups WHERE uid = $4)
		+ (SELECT count(*) FROM repos WHERE uid = $4) FROM trash WHERE uid > $1 AND uid < $2 AND create_ms <= $3`,
		[]any{below, above, store.MS(before), string(place)}, &n, &bytes, &there)
	if err == nil && there+n == 0 {
		err = fault.Missing("group or repo", string(place))
	}
	return n, bytes, err
}

// EmptyTrash removes up to n entries below a group or a repo that were deleted before a time, and returns how many it
// removed.
func (s *Store) EmptyTrash(ctx context.Context, place resource.UID, before time.Time, n int) (removed int, _ error) {
	below, above := beneath(place)
	return s.purgeSome(ctx, `uid > $2 AND uid < $3 AND create_ms <= $4 ORDER BY uid`, n, below, above, store.MS(before))
}

// ExpireTrash removes up to n entries that have expired, and returns how many it removed.
func (s *Store) ExpireTrash(ctx context.Context, now time.Time, n int) (removed int, _ error) {
	return s.purgeSome(ctx, `expire_ms <= $2 ORDER BY expire_ms`, n, store.MS(now))
}

// CountExpired returns how many entries of the trash have expired.
func (s *Store) CountExpired(ctx context.Context, now time.Time) (n int, _ error) {
	err := s.Row(ctx, `SELECT count(*) FROM trash WHERE expire_ms <= $1`, []any{store.MS(now)}, &n)
	return n, err
}

// TrashNeeds reports whether something in the trash of a repo needs a blob that the repo holds, or held.
func (s *Store) TrashNeeds(ctx context.Context, digest string) (bool, error) {
	var n int
	err := s.Row(ctx, `SELECT (SELECT count(*) FROM trash_blobs WHERE digest = $1) + (SELECT count(*) FROM repo_blobs AS b
		JOIN trash_refs AS r ON r.repo = b.repo AND r.blob = b.digest WHERE b.digest = $1)`, []any{digest}, &n)
	return n > 0, err
}

// purgeSome removes up to n entries that a condition with an order selects, whose first parameter is $2. Repos come last,
// because the other entries of one go with it.
func (s *Store) purgeSome(ctx context.Context, where string, n int, args ...any) (removed int, _ error) {
	err := s.write(ctx, func(t Tx) error {
		all, err := trash.All(ctx, t.Rows, ` WHERE t.seg IN (SELECT seg FROM trash WHERE `+where+` LIMIT $1)
			ORDER BY t.kind, t.uid`+s.Engine.ForDelete, append([]any{n}, args...)...)
		if err != nil {
			return err
		}
		for _, e := range all {
			if err := t.purge(ctx, e); err != nil {
				return err
			}
		}
		removed = len(all)
		return nil
	})
	return removed, err
}

// SweepTrash removes what the trash holds and nobody can restore: what was deleted from repos that the version before has
// deleted for good, repos of groups that it has deleted, and blobs that nothing in the trash needs or that are in their repo
// again. It looks at up to n of each, and returns how many it removed.
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

// sweepRepo removes what is in the trash of a repo, unless the repo is there or its group and the repo in the trash are.
func (s *Store) sweepRepo(ctx context.Context, repo resource.UID) (removed int, _ error) {
	err := s.write(ctx, func(t Tx) error {
		removed = 0
		inGroup := t.RequireGroup(ctx, repo.Parent())
		if inGroup != nil && !errors.Is(inGroup, fault.NotFound) {
			return inGroup
		}
		var there int
		if err := t.Row(ctx, `SELECT (SELECT count(*) FROM repos WHERE seg = $1) + (SELECT count(*) FROM trash_repos WHERE seg = $1)`,
			[]any{store.Segment(repo)}, &there); err != nil {
			return err
		}
		if inGroup == nil && there > 0 {
			return nil
		}
		removed = 1
		if err := t.DropTrash(ctx, repo); err != nil {
			return err
		}
		return t.dropGoneCounters(ctx, repo)
	})
	return removed, err
}

// dropGoneCounters removes the counters of groups above a repo that are no more.
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

// sweepBlobs removes blobs from the trash that nothing there needs, or that are in their repo again: it then counts once.
func (s *Store) sweepBlobs(ctx context.Context, n int) (removed int, _ error) {
	type blob struct {
		repo   resource.UID
		digest string
	}
	all, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b blob, err error) {
		err = row.Scan(&b.repo, &b.digest)
		return b, err
	}, `SELECT t.uid, t.digest FROM trash_blobs AS t
		WHERE NOT EXISTS (SELECT 1 FROM trash_refs AS r WHERE r.repo = t.repo AND r.blob = t.digest)
		OR EXISTS (SELECT 1 FROM repo_blobs AS r WHERE r.repo = t.repo AND r.digest = t.digest) LIMIT $1`, n)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		removed = 0
		for _, b := range all {
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

// sweepBlob removes a blob from the trash unless it is needed there by now. If the repo has it, it is held there first, so
// that nobody moves it to the trash at the same time and finds it there.
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
	sizes, err := store.ReadColumn[int64](ctx, t.Rows, `DELETE FROM trash_blobs WHERE repo = $1 AND digest = $2`+unneeded+`
		RETURNING coalesce((SELECT b.size FROM blobs AS b WHERE b.digest = trash_blobs.digest), 0)`, store.Segment(repo), digest)
	if err != nil || len(sizes) == 0 {
		return 0, err
	}
	return 1, t.countBytes(ctx, repo, -sizes[0])
}
