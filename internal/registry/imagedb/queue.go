package imagedb

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Images wait to be inspected in a queue that all replicas take from. One that was just
// pushed comes before those that are inspected again. Within a rank one organization is
// served after the other, so that nobody waits for all of another's images.

// A QueuedImage is an image that somebody has taken from the queue.
type QueuedImage struct {
	Repo   resource.UID
	Digest string
	Tries  int  // how often it was taken, this time included
	Again  bool // it was not just pushed

	Platform string // as SettleImage stores it; "" changes nothing

	root, due int64
}

// ReserveImage finds the next image of the queue and keeps it from others for a time. It
// is of another organization than the last one if any has an image there. It reports
// false if nothing is due.
func (s *Store) ReserveImage(ctx context.Context, last *QueuedImage, life time.Duration) (q QueuedImage, ok bool, _ error) {
	var after int64
	if last != nil {
		after = last.root
	}
	for range 8 { // others may be faster
		found, err := s.nextImage(ctx, after, &q)
		if err != nil || !found {
			return q, false, err
		}
		n, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4, tries = tries + 1
			WHERE repo = $1 AND digest = $2 AND due_ms = $3`, store.Segment(q.Repo), q.Digest, q.due, life.Milliseconds())
		if err != nil || n == 1 {
			q.Tries++
			return q, err == nil, err
		}
		after = q.root
	}
	return q, false, nil
}

// nextImage finds what is due: the lowest rank first, then the organization that follows
// the one given.
func (s *Store) nextImage(ctx context.Context, after int64, q *QueuedImage) (bool, error) {
	for rank := range registrydb.Ranks {
		for _, roots := range []string{`root > $2`, `root <= $2`} {
			err := s.Row(ctx, `SELECT uid, digest, root, tries, due_ms FROM images WHERE rank = $1 AND `+roots+`
				AND due_ms <= `+s.Engine.Clock+` ORDER BY root, due_ms LIMIT 1`, []any{rank, after},
				&q.Repo, &q.Digest, &q.root, &q.Tries, &q.due)
			if q.Again = rank == registrydb.RankAgain; !errors.Is(err, sql.ErrNoRows) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// KeepImage keeps an image from others for a longer time.
func (s *Store) KeepImage(ctx context.Context, q QueuedImage, life time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4 WHERE repo = $1 AND digest = $2
		AND tries = $3 AND due_ms IS NOT NULL`, store.Segment(q.Repo), q.Digest, q.Tries, life.Milliseconds())
	return err
}

// PostponeImage puts an image back into the queue for later, with the reason.
func (s *Store) PostponeImage(ctx context.Context, q QueuedImage, wait time.Duration, reason string) error {
	_, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+` + $4, reason = $5, tries = 0 WHERE repo = $1
		AND digest = $2 AND tries = $3 AND due_ms IS NOT NULL`, store.Segment(q.Repo), q.Digest, q.Tries,
		wait.Milliseconds(), reason)
	return err
}

// SettleImage takes an image out of the queue and says what came of it, as of a version
// of the extractors. When it was first indexed stays.
func (t Tx) SettleImage(
	ctx context.Context, q QueuedImage, state registry.ImageState, reason string, extractors int,
) error {
	now := store.MS(t.DB.Time())
	var indexed *int64
	if state == registry.ImageIndexed {
		indexed = &now
	}
	if err := t.Later(ctx, `UPDATE images SET due_ms = NULL, tries = 0, state = $3, reason = $4, extractors = $5,
		update_ms = $6, platform = CASE WHEN $7 = '' THEN platform ELSE $7 END, indexed_ms = coalesce(indexed_ms, $8)
		WHERE repo = $1 AND digest = $2`, store.Segment(q.Repo), q.Digest, int(state), reason, extractors, now, q.Platform,
		indexed); err != nil {
		return err
	}
	return t.queueAttached(ctx, q)
}

// HoldImage holds an image and its manifest until the commit. It reports false if either
// is gone.
//
// Everybody locks in one order: manifest, image, inspection, chunks from the lowest on.
func (t Tx) HoldImage(ctx context.Context, q QueuedImage) (bool, error) {
	for _, text := range []string{
		`SELECT 1 FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2` + t.DB.Engine.ForShare,
		`SELECT 1 FROM images AS t WHERE t.repo = $1 AND t.digest = $2` + t.DB.Engine.ForDelete,
	} {
		var one int
		err := t.Row(ctx, text, []any{store.Segment(q.Repo), q.Digest}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// QueueLength returns how many images wait to be inspected, or 10,000 if there are more.
func (s *Store) QueueLength(ctx context.Context) (n int64, _ error) {
	const most = 10_000
	err := s.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM images WHERE due_ms IS NOT NULL LIMIT $1) AS q`, []any{most}, &n)
	return n, err
}

// sweepBatch is how many rows one transaction of a sweep changes.
const sweepBatch = 200

// SweepImages queues images that the version before this one has pushed, or that were
// there before images were inspected; forgets those whose manifest that version has
// deleted; and queues those that older extractors have read. It returns how many there
// were.
func (s *Store) SweepImages(ctx context.Context, extractors int) (n int, err error) {
	return repeat(ctx, extractors, s.queueUnseen, s.forgetStale, s.queueOutdated)
}

// repeat repeats each of the steps of a sweep until nothing is left to do.
func repeat(
	ctx context.Context, version int, steps ...func(_ context.Context, version int) (int, error),
) (n int, err error) {
	for _, step := range steps {
		for {
			did, err := step(ctx, version)
			n += did
			if err != nil {
				return n, err
			}
			if did < sweepBatch {
				break
			}
		}
	}
	return n, nil
}

func (s *Store) queueUnseen(ctx context.Context, _ int) (int, error) {
	type unseen struct {
		repo   resource.UID
		digest string
	}
	quoted := func(all []string) string { return `'` + strings.Join(all, `', '`) + `'` }
	all, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (u unseen, err error) {
		err = row.Scan(&u.repo, &u.digest)
		return u, err
	}, `SELECT r.uid, m.digest FROM manifests AS m JOIN repos AS r ON r.seg = m.repo WHERE m.subject = ''
		AND m.media_type IN (`+quoted(registry.ImageManifests)+`) AND m.artifact_type IN (`+quoted(registry.ImageConfigs)+`)
		AND NOT EXISTS (SELECT 1 FROM images AS i WHERE i.repo = m.repo AND i.digest = m.digest) LIMIT $1`, sweepBatch)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return len(all), s.write(ctx, func(t Tx) error {
		for _, u := range all {
			if err := registrydb.In(t.Tx).EnqueueImage(ctx, u.repo, u.digest, registrydb.RankAgain); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) forgetStale(ctx context.Context, _ int) (int, error) {
	stale := map[resource.UID][]string{}
	n := 0
	err := s.Rows(ctx, `SELECT i.uid, i.digest FROM images AS i WHERE NOT EXISTS (SELECT 1 FROM manifests AS m
		WHERE m.repo = i.repo AND m.digest = i.digest) LIMIT $1`, []any{sweepBatch}, func(row store.Scanner) (bool, error) {
		var repo resource.UID
		var digest string
		err := row.Scan(&repo, &digest)
		stale[repo] = append(stale[repo], digest)
		n++
		return false, err
	})
	if err != nil {
		return 0, err
	}
	for repo, digests := range stale {
		for _, d := range digests {
			if err := s.write(ctx, func(t Tx) error { return t.forgetUnlessPushed(ctx, repo, d) }); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// forgetUnlessPushed forgets an image whose manifest was gone, and has not come back
// since. If it comes back in this moment, the next sweep queues it.
func (t Tx) forgetUnlessPushed(ctx context.Context, repo resource.UID, digest string) error {
	there, err := store.ReadColumn[int](ctx, t.Rows,
		`SELECT 1 FROM manifests AS t WHERE t.repo = $1 AND t.digest = $2`+t.DB.Engine.ForShare, store.Segment(repo), digest)
	if err != nil || len(there) > 0 {
		return err
	}
	return registrydb.In(t.Tx).ForgetImages(ctx, repo, digest)
}

func (s *Store) queueOutdated(ctx context.Context, extractors int) (int, error) {
	n, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+`, rank = $2, tries = 0 WHERE (repo, digest) IN (
		SELECT repo, digest FROM images WHERE extractors < $1 AND due_ms IS NULL LIMIT $3)`, extractors, registrydb.RankAgain, sweepBatch)
	return int(n), err
}
