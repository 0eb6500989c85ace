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

// The documents that are attached to an image are looked through whenever one arrives or
// goes: all of them again, so that it does not matter in which order that is noticed. The
// row of the image is the queue, beside that of inspecting the image itself.

// attachedTo is a condition on images: that something may be attached to one. $3 to $5 are
// the tags for it.
const attachedTo = `(EXISTS (SELECT 1 FROM manifests AS a WHERE a.repo = images.repo AND a.subject = images.digest
	AND a.subject <> '') OR EXISTS (SELECT 1 FROM manifest_refs AS r WHERE r.repo = images.repo AND r.child = images.digest)
	OR EXISTS (SELECT 1 FROM image_sboms AS s WHERE s.repo = images.repo AND s.image = images.digest)
	OR EXISTS (SELECT 1 FROM tags AS g WHERE g.parent = images.repo AND g.name IN ($3, $4, $5)))`

// queueAttached has the documents of an image that was just inspected looked through, if
// there are any: those that came before the image were not queued, and what they say is
// told by what the image has.
func (t Tx) queueAttached(ctx context.Context, q QueuedImage) error {
	tag := strings.Replace(q.Digest, ":", "-", 1)
	return t.Later(ctx, `UPDATE images SET sbom_due_ms = CASE WHEN `+attachedTo+` THEN `+t.DB.Engine.Clock+`
		ELSE sbom_due_ms END, sbom_rank = rank, sbom_reader = $6 WHERE repo = $1 AND digest = $2`,
		store.Segment(q.Repo), q.Digest, tag, tag+".att", tag+".sbom", registry.SBOMReader)
}

// ReserveSBOMs finds the next image whose documents are to be looked through, and keeps it
// from others for a time, as ReserveImage does.
func (s *Store) ReserveSBOMs(ctx context.Context, last *QueuedImage, life time.Duration) (q QueuedImage, ok bool, _ error) {
	var after int64
	if last != nil {
		after = last.root
	}
	for range 8 { // others may be faster
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

// nextSBOMs finds what is due, in the order of nextImage.
func (s *Store) nextSBOMs(ctx context.Context, after int64, q *QueuedImage) (bool, error) {
	for rank := range registrydb.Ranks {
		for _, roots := range []string{`root > $2`, `root <= $2`} {
			err := s.Row(ctx, `SELECT uid, digest, root, sbom_due_ms FROM images WHERE sbom_rank = $1 AND `+roots+`
				AND sbom_due_ms <= `+s.Engine.Clock+` ORDER BY root, sbom_due_ms LIMIT 1`, []any{rank, after},
				&q.Repo, &q.Digest, &q.root, &q.due)
			if q.Again = rank == registrydb.RankAgain; !errors.Is(err, sql.ErrNoRows) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// KeepSBOMs keeps an image that ReserveSBOMs has returned from others for a longer time, and
// returns it. It reports false if its documents have changed since.
func (s *Store) KeepSBOMs(ctx context.Context, q QueuedImage, life time.Duration) (QueuedImage, bool, error) {
	err := s.write(ctx, func(t Tx) error {
		return t.Row(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
			AND sbom_due_ms = $3 RETURNING sbom_due_ms`, []any{store.Segment(q.Repo), q.Digest, q.due, life.Milliseconds()},
			&q.due)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return q, false, nil
	}
	return q, err == nil, err
}

// PostponeSBOMs has the documents of an image looked through later.
func (s *Store) PostponeSBOMs(ctx context.Context, q QueuedImage, wait time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
		AND sbom_due_ms = $3`, store.Segment(q.Repo), q.Digest, q.due, wait.Milliseconds())
	return err
}

// SettleSBOMs takes an image that is held out of the queue of those whose documents are
// looked through. It reports false if the documents have changed
// since the image was reserved, or if it was reserved again: then another look counts.
func (t Tx) SettleSBOMs(ctx context.Context, q QueuedImage) (bool, error) {
	n, err := t.Exec(ctx, `UPDATE images SET sbom_due_ms = NULL, sbom_reader = $4, platform = $5 WHERE repo = $1
		AND digest = $2 AND sbom_due_ms = $3`, store.Segment(q.Repo), q.Digest, q.due, registry.SBOMReader, q.Platform)
	return n == 1, err
}

// queueUnread queues images whose documents were not looked through, or by an older version,
// behind those that are pushed.
func (s *Store) queueUnread(ctx context.Context, reader int) (int, error) {
	n, err := s.Exec(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+`, sbom_rank = $2 WHERE (repo, digest) IN (
		SELECT repo, digest FROM images WHERE sbom_reader < $1 AND sbom_due_ms IS NULL LIMIT $3)`, reader, registrydb.RankAgain, sweepBatch)
	return int(n), err
}

// forgetSBOMs removes what is left of SBOMs of images that the version before has deleted.
func (s *Store) forgetSBOMs(ctx context.Context, _ int) (int, error) {
	n, err := s.Exec(ctx, `DELETE FROM image_sboms WHERE (repo, image, manifest) IN (SELECT s.repo, s.image, s.manifest
		FROM image_sboms AS s WHERE NOT EXISTS (SELECT 1 FROM images AS i WHERE i.repo = s.repo AND i.digest = s.image)
		LIMIT $1)`, sweepBatch)
	return int(n), err
}

// queueLost queues images whose documents the version before has deleted.
func (s *Store) queueLost(ctx context.Context, _ int) (int, error) {
	n, err := s.Exec(ctx, `UPDATE images SET sbom_due_ms = `+s.Engine.Clock+`, sbom_rank = $1 WHERE sbom_due_ms IS NULL
		AND (repo, digest) IN (SELECT s.repo, s.image FROM image_sboms AS s WHERE NOT EXISTS (SELECT 1 FROM manifests AS m
		WHERE m.repo = s.repo AND m.digest = s.manifest) LIMIT $2)`, registrydb.RankAgain, sweepBatch)
	return int(n), err
}

// SweepSBOMs queues images whose documents were not looked through by this version of the
// reader, and those of which the version before this one has deleted documents. It returns
// how many there were.
func (s *Store) SweepSBOMs(ctx context.Context, reader int) (n int, err error) {
	return repeat(ctx, reader, s.queueUnread, s.forgetSBOMs, s.queueLost)
}

// SBOMQueueLength returns how many images wait for their documents to be looked through, or
// 10,000 if there are more.
func (s *Store) SBOMQueueLength(ctx context.Context) (n int64, _ error) {
	const most = 10_000
	err := s.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM images WHERE sbom_due_ms IS NOT NULL LIMIT $1) AS q`, []any{most}, &n)
	return n, err
}
