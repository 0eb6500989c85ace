package imagedb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Images wait for their inspection in a queue that all replicas share. Images that were just pushed come before
// images that are inspected again. Within a rank, tenants share the processor time: see share.go. So a tenant with many
// images, or with costly ones, does not delay the others.

// A QueuedImage is an image that a replica has taken from the queue.
type QueuedImage struct {
	Repo   resource.UID
	Digest string
	Tries  int  // number of times that the image was taken from the queue, including this time
	Again  bool // whether the rank is RankAgain, because the image was not just pushed

	Platform string // platform that SettleImage stores; "" keeps the stored platform

	root, due int64
}

// ReserveImage takes the next image from the queue, leases it for a time, and charges its tenant with minCost. Among
// tenants that have used the same time, it takes an image of the next organization after the one of last. It reports
// false if nothing is due.
func (s *Store) ReserveImage(
	ctx context.Context, last *QueuedImage, life time.Duration,
) (q QueuedImage, ok bool, _ error) {
	var after int64
	if last != nil {
		after = last.root
	}
	for range 8 { // tries again if another replica takes the same image first
		found, err := s.nextImage(ctx, after, &q)
		if err != nil || !found {
			return q, false, err
		}
		taken, err := s.take(ctx, q, life)
		if err != nil || taken {
			q.Tries++
			return q, err == nil, err
		}
		after = q.root
	}
	return q, false, nil
}

// take leases an image that nextImage has found, and charges its tenant. It reports false if another replica has taken
// the image.
func (s *Store) take(ctx context.Context, q QueuedImage, life time.Duration) (taken bool, _ error) {
	tenant := s.tenantNumber(ctx, q.Repo)
	err := s.write(ctx, func(t Tx) error {
		n, err := t.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4, tries = tries + 1
			WHERE repo = $1 AND digest = $2 AND due_ms = $3`,
			store.Segment(q.Repo), q.Digest, q.due, life.Milliseconds())
		if taken = n == 1; err != nil || !taken {
			return err
		}
		if !q.Again && q.Tries == 0 {
			if err := t.countTaken(ctx, q.root); err != nil {
				return err
			}
		}
		return t.charge(ctx, tenant, minCost)
	})
	return taken, err
}

// waitingRoots returns the organizations with images that are due in a rank, sorted by their numbers.
func (s *Store) waitingRoots(
	ctx context.Context, rank int, rankColumn, dueColumn string,
) (roots []waitingRoot, _ error) {
	first := `(SELECT min(i.root) FROM images AS i WHERE i.` + rankColumn + ` = $1 AND i.` + dueColumn + ` IS NOT NULL`
	text := `WITH RECURSIVE roots (root) AS (SELECT ` + first + `)
		UNION ALL SELECT ` + first + ` AND i.root > roots.root) FROM roots WHERE roots.root IS NOT NULL)
		SELECT r.root, coalesce((SELECT i.uid FROM images AS i WHERE i.` + rankColumn + ` = $1 AND i.root = r.root
			AND i.` + dueColumn + ` <= ` + s.Engine.Clock + ` ORDER BY i.` + dueColumn + ` LIMIT 1), '')
		FROM roots AS r WHERE r.root IS NOT NULL`
	err := s.Rows(ctx, text, []any{rank}, func(row store.Scanner) (bool, error) {
		var r waitingRoot
		err := row.Scan(&r.root, &r.repo)
		if r.repo != "" {
			roots = append(roots, r)
		}
		return false, err
	})
	slices.SortFunc(roots, func(a, b waitingRoot) int { return cmp.Compare(a.root, b.root) })
	return roots, err
}

// nextImage finds an image that is due, and stores it in q. It chooses the lowest rank that has a due image and, within
// the rank, the tenant that has used the least time.
func (s *Store) nextImage(ctx context.Context, after int64, q *QueuedImage) (bool, error) {
	for rank := range registrydb.Ranks {
		roots, err := s.waitingRoots(ctx, rank, "rank", "due_ms")
		if err != nil {
			return false, err
		}
		if len(roots) == 0 {
			continue
		}
		root, err := s.cheapest(ctx, roots, after)
		if err != nil {
			return false, err
		}
		err = s.Row(ctx, `SELECT uid, digest, root, tries, due_ms FROM images WHERE rank = $1 AND root = $2
			AND due_ms <= `+s.Engine.Clock+` ORDER BY due_ms LIMIT 1`, []any{rank, root},
			&q.Repo, &q.Digest, &q.root, &q.Tries, &q.due)
		if q.Again = rank == registrydb.RankAgain; !errors.Is(err, sql.ErrNoRows) {
			return err == nil, err
		}
	}
	return false, nil
}

// KeepImage extends the lease of an image.
func (s *Store) KeepImage(ctx context.Context, q QueuedImage, life time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
		AND tries = $3 AND due_ms IS NOT NULL`, store.Segment(q.Repo), q.Digest, q.Tries, life.Milliseconds())
	return err
}

// PostponeImage returns an image to the queue, due after wait, and stores the reason.
func (s *Store) PostponeImage(ctx context.Context, q QueuedImage, wait time.Duration, reason string) error {
	_, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4, reason = $5, tries = 0 WHERE repo = $1
		AND digest = $2 AND tries = $3 AND due_ms IS NOT NULL`, store.Segment(q.Repo), q.Digest, q.Tries,
		wait.Milliseconds(), reason)
	return err
}

// SettleImage removes an image from the queue and stores the result of its inspection, with the version of the
// extractors. If the image was indexed before, the time of its first indexing does not change.
func (t Tx) SettleImage(
	ctx context.Context, q QueuedImage, state registry.ImageState, reason string, extractors int,
) error {
	updated := store.MS(t.DB.Time())
	var indexed *int64
	if state == registry.ImageIndexed {
		indexed = &updated
	}
	if err := t.Later(ctx, `UPDATE images SET due_ms = NULL, tries = 0, state = $3, reason = $4, extractors = $5,
		update_ms = $6, platform = CASE WHEN $7 = '' THEN platform ELSE $7 END, indexed_ms = coalesce(indexed_ms, $8)
		WHERE repo = $1 AND digest = $2`, store.Segment(q.Repo), q.Digest, int(state), reason, extractors, updated,
		q.Platform, indexed); err != nil {
		return err
	}
	return t.queueAttached(ctx, q)
}

// HoldImage locks an image and holds its manifest until the commit. It reports false if the image or the manifest is
// gone.
//
// All transactions lock in one order: manifest, image, inspection, then chunks in rising order.
func (t Tx) HoldImage(ctx context.Context, q QueuedImage) (bool, error) {
	held, err := registrydb.In(t.Tx).HoldManifest(ctx, q.Repo, q.Digest)
	if err != nil || !held {
		return false, err
	}
	images, err := store.ReadColumn[int](ctx, t.Rows,
		`SELECT 1 FROM images AS t WHERE t.repo = $1
			AND t.digest = $2`+t.DB.Engine.ForDelete, store.Segment(q.Repo), q.Digest)
	return len(images) > 0, err
}

// QueueLength returns the number of images in the queue, at most 10,000.
func (s *Store) QueueLength(ctx context.Context) (n int64, _ error) {
	const most = 10_000
	err := s.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM images WHERE due_ms IS NOT NULL LIMIT $1) AS q`,
		[]any{most}, &n)
	return n, err
}

// OldestQueued returns the time at which the first of the images that wait for their first inspection was pushed. It
// returns the zero time if none waits. It considers 10,000 images.
func (s *Store) OldestQueued(ctx context.Context) (time.Time, error) {
	var oldest *int64
	err := s.Row(ctx, `SELECT min(q.update_ms) FROM (SELECT update_ms FROM images WHERE rank = $1 AND due_ms IS NOT NULL
		LIMIT 10000) AS q`, []any{registrydb.RankPushed}, &oldest)
	if err != nil || oldest == nil {
		return time.Time{}, err
	}
	return store.FromMS(*oldest), nil
}

// sweepBatch is the number of rows that one transaction of a sweep changes.
const sweepBatch = 200

// SweepImages queues images that older extractors inspected. It returns the number of images that it queued.
func (s *Store) SweepImages(ctx context.Context, extractors int) (n int, err error) {
	return repeat(func() (int, error) {
		n, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+`, rank = $2, tries = 0
			WHERE (repo, digest) IN (SELECT repo, digest FROM images WHERE extractors < $1 AND due_ms IS NULL LIMIT $3)`,
			extractors, registrydb.RankAgain, sweepBatch)
		return int(n), err
	})
}

// repeat runs a step of a sweep until it changes fewer rows than sweepBatch, and returns the sum of the changes.
func repeat(step func() (int, error)) (n int, err error) {
	for {
		changed, err := step()
		n += changed
		if err != nil || changed < sweepBatch {
			return n, err
		}
	}
}
