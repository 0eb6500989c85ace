package imagedb

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Whenever a document is attached to an image or removed from it, all documents of the image are read again, so that
// the order of the changes does not matter. This is a second queue, in the columns sbom_* of the table images.

// attachedTo is the SQL condition that documents may be attached to an image. $3 to $5 are the names of tags by which
// clients attach documents.
const attachedTo = `(EXISTS (SELECT 1 FROM ` + registrydb.ManifestRows + ` AS a WHERE a.repo = images.repo
	AND a.subject = images.digest
	AND a.subject <> '')
	OR EXISTS (SELECT 1 FROM ` + registrydb.ManifestRefRows + ` AS r WHERE r.repo = images.repo
	AND r.child = images.digest)
	OR EXISTS (SELECT 1 FROM image_sboms AS s WHERE s.repo = images.repo AND s.image = images.digest)
	OR EXISTS (SELECT 1 FROM ` + registrydb.TagRows + ` AS g WHERE g.parent = images.repo AND g.name IN ($3, $4, $5)))`

// queueAttached queues the documents of an image that was just inspected, if there are any. Documents that were
// attached before the image had a row could not be queued. Reading them also depends on the packages of the image.
func (t Tx) queueAttached(ctx context.Context, q QueuedImage) error {
	t.Wakes(store.DocumentQueue)
	tag := strings.Replace(q.Digest, ":", "-", 1)
	return t.Later(ctx, `UPDATE images SET sbom_due_ms = CASE WHEN `+attachedTo+` THEN `+t.DB.Engine.Clock+`
		ELSE sbom_due_ms END, sbom_rank = rank, sbom_reader = $6 WHERE repo = $1 AND digest = $2`,
		store.Segment(q.Repo), q.Digest, tag, tag+".att", tag+".sbom", registry.SBOMReader)
}

// ReserveSBOMs is ReserveImage for the queue of images whose documents must be read.
func (s *Store) ReserveSBOMs(
	ctx context.Context, last *QueuedImage, life time.Duration,
) (q QueuedImage, ok bool, _ error) {
	var after int64
	if last != nil {
		after = last.root
	}
	for range 8 { // tries again if another replica takes the same image first
		found, err := s.nextSBOMs(ctx, after, &q)
		if err != nil || !found {
			return q, false, err
		}
		kept, ok, err := s.KeepSBOMs(ctx, q, life)
		if err != nil || ok {
			return kept, ok, err
		}
		after = q.root
	}
	return q, false, nil
}

// nextSBOMs finds an image whose documents are due. It chooses among images as nextImage does.
func (s *Store) nextSBOMs(ctx context.Context, after int64, q *QueuedImage) (bool, error) {
	for rank := range registrydb.Ranks {
		roots, err := s.waitingRoots(ctx, rank, "sbom_rank", "sbom_due_ms")
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
		err = s.Row(ctx, `SELECT uid, digest, root, sbom_due_ms FROM images WHERE sbom_rank = $1 AND root = $2
			AND sbom_due_ms <= `+s.Engine.Clock+` ORDER BY sbom_due_ms LIMIT 1`, []any{rank, root},
			&q.Repo, &q.Digest, &q.root, &q.due)
		if q.Again = rank == registrydb.RankAgain; !errors.Is(err, sql.ErrNoRows) {
			return err == nil, err
		}
	}
	return false, nil
}

// KeepSBOMs extends the lease of an image that ReserveSBOMs returned, and returns the image with the new lease. It
// reports false if the documents of the image have changed since then.
func (s *Store) KeepSBOMs(ctx context.Context, q QueuedImage, life time.Duration) (QueuedImage, bool, error) {
	err := s.write(ctx, func(t Tx) error {
		return t.Row(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
			AND sbom_due_ms = $3 RETURNING sbom_due_ms`,
			[]any{store.Segment(q.Repo), q.Digest, q.due, life.Milliseconds()}, &q.due)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return q, false, nil
	}
	return q, err == nil, err
}

// PostponeSBOMs returns an image to the queue, due after wait.
func (s *Store) PostponeSBOMs(ctx context.Context, q QueuedImage, wait time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
		AND sbom_due_ms = $3`, store.Segment(q.Repo), q.Digest, q.due, wait.Milliseconds())
	return err
}

// SettleSBOMs removes an image, which the transaction holds, from the queue. It reports false if the documents have
// changed since the image was reserved, or if the image was reserved again. Then the caller must discard its results.
func (t Tx) SettleSBOMs(ctx context.Context, q QueuedImage) (bool, error) {
	n, err := t.Exec(ctx, `UPDATE images SET sbom_due_ms = NULL, sbom_reader = $4, platform = $5 WHERE repo = $1
		AND digest = $2 AND sbom_due_ms = $3`, store.Segment(q.Repo), q.Digest, q.due, registry.SBOMReader, q.Platform)
	return n == 1, err
}

// SweepSBOMs queues images whose documents were never read, or were read by an older version of the reader. They come
// after images that were just pushed. It returns the number of images that it queued.
func (s *Store) SweepSBOMs(ctx context.Context, reader int) (n int, err error) {
	return repeat(func() (int, error) {
		n, err := s.Exec(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+`, sbom_rank = $2 WHERE (repo, digest) IN (
			SELECT repo, digest FROM images WHERE sbom_reader < $1 AND sbom_due_ms IS NULL LIMIT $3)`,
			reader, registrydb.RankAgain, sweepBatch)
		return int(n), err
	})
}

// SBOMQueueLength returns the number of images whose documents wait to be read, at most 10,000.
func (s *Store) SBOMQueueLength(ctx context.Context) (n int64, _ error) {
	const most = 10_000
	err := s.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM images WHERE sbom_due_ms IS NOT NULL LIMIT $1) AS q`,
		[]any{most}, &n)
	return n, err
}
