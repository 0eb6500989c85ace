package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// Images wait to be inspected in a queue that all replicas take from. One that was just
// pushed comes before those that are inspected again. Within a rank one organization is
// served after the other, so that nobody waits for all of another's images.
const (
	rankPushed = iota
	rankAgain
	ranks
)

// queueImage puts an image that was pushed into the queue.
func (t Tx) queueImage(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	if !m.IsImage() {
		return nil
	}
	return t.enqueue(ctx, repo, m.Digest, rankPushed)
}

func (t Tx) enqueue(ctx context.Context, repo resource.UID, digest string, rank int) error {
	return t.Later(ctx, `INSERT INTO images (repo, digest, root, uid, state, reason, extractors, tries, rank, due_ms, update_ms)
		VALUES ($1, $2, $3, $4, $5, '', 0, 0, $6, `+t.DB.Engine.Clock+`, $7) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), digest, store.Segment(repo.Root()), string(repo), int(registry.ImageWaiting), rank,
		store.MS(t.DB.Time()))
}

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
	for rank := range ranks {
		for _, roots := range []string{`root > $2`, `root <= $2`} {
			err := s.Row(ctx, `SELECT uid, digest, root, tries, due_ms FROM images WHERE rank = $1 AND `+roots+`
				AND due_ms <= `+s.Engine.Clock+` ORDER BY root, due_ms LIMIT 1`, []any{rank, after},
				&q.Repo, &q.Digest, &q.root, &q.Tries, &q.due)
			if q.Again = rank == rankAgain; !errors.Is(err, sql.ErrNoRows) {
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

// ImageNumbers returns the numbers of the images with a digest that were inspected, in
// order. One whose repo lacks its layers may have a number for what SBOMs say of it.
func (t Tx) ImageNumbers(ctx context.Context, digest string) ([]int64, error) {
	return store.ReadColumn[int64](ctx, t.Rows,
		`SELECT number FROM images WHERE digest = $1 AND number IS NOT NULL AND state = $2 ORDER BY number`, digest,
		int(registry.ImageIndexed))
}

// LockChunks locks the chunks of numbers, and those of images that are to be numbered, from
// the lowest on.
func (t Tx) LockChunks(ctx context.Context, numbers []int64, fresh ...QueuedImage) error {
	numbers = slices.Clone(numbers)
	for _, q := range fresh {
		last, err := t.lastChunk(ctx, q.Repo.Root())
		if err != nil {
			return err
		}
		if last != nil {
			numbers = append(numbers, *last*bitmap.Size)
		}
	}
	for _, chunk := range chunksOf(numbers) {
		var one int
		err := t.Row(ctx, `SELECT 1 FROM image_chunks AS t WHERE t.chunk = $1`+t.DB.Engine.ForDelete, []any{chunk}, &one)
		if err != nil {
			return err
		}
	}
	return nil
}

func chunksOf(numbers []int64) (all []int64) {
	for _, n := range numbers {
		chunk, _ := bitmap.At(n)
		all = append(all, chunk)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// NumberImage gives an image its number, unless it has one, and locks the chunk of that.
// Events tell what is wrong with one that gets its number, if it was just pushed.
func (t Tx) NumberImage(ctx context.Context, q QueuedImage) (int64, error) {
	var number *int64
	err := t.Row(ctx, `SELECT number FROM images WHERE repo = $1 AND digest = $2`,
		[]any{store.Segment(q.Repo), q.Digest}, &number)
	if err != nil {
		return 0, err
	}
	if number != nil {
		return *number, t.LockChunks(ctx, []int64{*number})
	}
	n, err := t.nextNumber(ctx, q.Repo.Root())
	if err != nil {
		return 0, err
	}
	if err := t.Later(ctx, `UPDATE images SET number = $3 WHERE repo = $1 AND digest = $2`,
		store.Segment(q.Repo), q.Digest, n); err != nil {
		return 0, err
	}
	if err := t.Later(ctx, `INSERT INTO image_news (number, root, told, quiet) VALUES ($1, $2, $3, $4)`, n,
		store.Segment(q.Repo.Root()), []byte{}, q.Again); err != nil {
		return 0, err
	}
	chunk, place := bitmap.At(n)
	return n, t.changeGroups(ctx, q.Repo, chunk, func(s *bitmap.Set) { s.Add(place) })
}

// lastChunk returns the last chunk in which an organization has images, or nil.
func (t Tx) lastChunk(ctx context.Context, root resource.UID) (last *int64, _ error) {
	err := t.Row(ctx, `SELECT max(chunk) FROM group_images WHERE grp = $1`, []any{store.Segment(root)}, &last)
	return last, err
}

// nextNumber takes the next number of the last chunk of an organization, or begins another
// chunk. No two organizations share one, so that nobody has to read past what images of
// others have.
func (t Tx) nextNumber(ctx context.Context, root resource.UID) (int64, error) {
	last, err := t.lastChunk(ctx, root)
	for err == nil && last != nil {
		var used int64
		if err := t.Row(ctx, `SELECT t.used FROM image_chunks AS t WHERE t.chunk = $1`+t.DB.Engine.ForDelete, []any{*last},
			&used); err != nil {
			return 0, err
		}
		if used < bitmap.Size {
			return *last*bitmap.Size + used, t.Later(ctx, `UPDATE image_chunks SET used = used + 1 WHERE chunk = $1`, *last)
		}
		full := *last // whoever had it before may have begun another one
		if last, err = t.lastChunk(ctx, root); err == nil && *last == full {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	return t.beginChunk(ctx)
}

// beginChunk makes a new chunk and takes its first number.
func (t Tx) beginChunk(ctx context.Context) (int64, error) {
	for {
		var next int64
		if err := t.Row(ctx, `SELECT coalesce(max(chunk) + 1, 0) FROM image_chunks`, nil, &next); err != nil {
			return 0, err
		}
		n, err := t.Exec(ctx, `INSERT INTO image_chunks (chunk, used, gone) VALUES ($1, 1, 0) ON CONFLICT (chunk) DO NOTHING`,
			next)
		if err != nil || n == 1 {
			return next * bitmap.Size, err
		}
	}
}

// changeGroups changes the bitmaps of a repo and of the groups above it, whose chunk is
// locked.
func (t Tx) changeGroups(ctx context.Context, repo resource.UID, chunk int64, change func(*bitmap.Set)) error {
	holders := []int64{store.Segment(repo)}
	for _, g := range repo.Ancestors() {
		holders = append(holders, store.Segment(g))
	}
	q := store.Query{Engine: t.DB.Engine}
	have, err := store.ReadMap[int64, []byte](ctx, t.Rows, fmt.Sprintf(`SELECT g.grp, g.bits FROM %s AS s
		CROSS JOIN group_images AS g WHERE g.grp = s.v AND g.chunk = %s`, t.DB.Engine.Unnest(&q, holders), q.Arg(chunk)), q.Args...)
	if err != nil {
		return err
	}
	var rows [][]any
	for _, holder := range holders {
		set, err := bitmap.Decode(have[holder])
		if err != nil {
			return err
		}
		change(&set)
		if set.Len() > 0 {
			rows = append(rows, []any{holder, chunk, set.Encode()})
		} else if err := t.Later(ctx, `DELETE FROM group_images WHERE grp = $1 AND chunk = $2`, holder, chunk); err != nil {
			return err
		}
	}
	return t.InsertRows(ctx, `INSERT INTO group_images (grp, chunk, bits)`, rows,
		` ON CONFLICT (grp, chunk) DO UPDATE SET bits = excluded.bits`)
}

// forgetImages removes images of a repo, one if a digest is given, from the queue and from
// what groups have. What is known about their content stays until it is swept up.
func (t Tx) forgetImages(ctx context.Context, repo resource.UID, digest string) error {
	text, sboms, args := `DELETE FROM images WHERE repo = $1`, `DELETE FROM image_sboms WHERE repo = $1`,
		[]any{store.Segment(repo)}
	if digest != "" {
		text, sboms, args = text+` AND digest = $2`, sboms+` AND image = $2`, append(args, digest)
	}
	all, err := store.ReadColumn[*int64](ctx, t.Rows, text+` RETURNING number`, args...)
	if err != nil {
		return err
	}
	if err := t.Later(ctx, sboms, args...); err != nil {
		return err
	}
	var numbers []int64
	gone := map[int64]*bitmap.Set{}
	for _, n := range all {
		if n == nil {
			continue
		}
		numbers = append(numbers, *n)
		chunk, place := bitmap.At(*n)
		if gone[chunk] == nil {
			gone[chunk] = &bitmap.Set{}
		}
		gone[chunk].Add(place)
	}
	if err := t.LockChunks(ctx, numbers); err != nil {
		return err
	}
	for _, chunk := range chunksOf(numbers) {
		set := gone[chunk]
		if err := t.changeGroups(ctx, repo, chunk, func(s *bitmap.Set) { s.Minus(set) }); err != nil {
			return err
		}
		if err := t.Later(ctx, `UPDATE image_chunks SET gone = gone + $2 WHERE chunk = $1`, chunk, set.Len()); err != nil {
			return err
		}
	}
	return nil
}

// Images returns what is known about images of a repo, by digest. One that is not
// there, or is no image, is left out.
func (s *Store) Images(
	ctx context.Context, repo resource.UID, digests []string,
) (map[string]registry.StoredImage, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT i.digest, i.state, i.reason, i.update_ms, i.indexed_ms FROM %s AS s CROSS JOIN images AS i
		WHERE i.repo = %s AND i.digest = s.v`, s.Engine.Unnest(&q, digests), q.Arg(store.Segment(repo)))
	all := map[string]registry.StoredImage{}
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		i := registry.StoredImage{Repo: repo}
		var updated int64
		var indexed *int64
		err := row.Scan(&i.Digest, &i.State, &i.Reason, &updated, &indexed)
		i.UpdateTime = store.FromMS(updated)
		if indexed != nil {
			i.IndexTime = store.FromMS(*indexed)
		}
		if i.State != registry.ImageNone {
			all[i.Digest] = i
		}
		return false, err
	})
	return all, err
}

// ImageStates returns the states of images of a repo, by digest, also of those that turned
// out to be none.
func (s *Store) ImageStates(
	ctx context.Context, repo resource.UID, digests []string,
) (map[string]registry.ImageState, error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadMap[string, registry.ImageState](ctx, s.Rows, fmt.Sprintf(`SELECT i.digest, i.state FROM %s AS s
		CROSS JOIN images AS i WHERE i.repo = %s AND i.digest = s.v`, s.Engine.Unnest(&q, digests),
		q.Arg(store.Segment(repo))), q.Args...)
}

// A NumberedImage is an image by its number, with the tags that stand for it or for an
// index that lists it, as far as they were asked for.
type NumberedImage struct {
	Number   int64
	Repo     resource.UID
	Digest   string
	Platform string // such as linux/arm64/v8
	Tags     []string
}

// maxImageTags is how many tags are read for a page of images.
const maxImageTags = 5000

// NumberedImages returns images by their numbers, in this order. One that is gone is left
// out.
func (s *Store) NumberedImages(ctx context.Context, numbers []int64) (all []NumberedImage, _ error) {
	q := store.Query{Engine: s.Engine}
	found, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (i NumberedImage, err error) {
		err = row.Scan(&i.Number, &i.Repo, &i.Digest, &i.Platform)
		return i, err
	}, fmt.Sprintf(`SELECT i.number, i.uid, i.digest, i.platform FROM %s AS s CROSS JOIN images AS i WHERE i.number = s.v`,
		s.Engine.Unnest(&q, numbers)), q.Args...)
	if err != nil {
		return nil, err
	}
	tags, err := s.tagsOfImages(ctx, numbers)
	if err != nil {
		return nil, err
	}
	byNumber := map[int64]NumberedImage{}
	for _, i := range found {
		byNumber[i.Number] = i
	}
	for _, n := range numbers {
		if i, ok := byNumber[n]; ok {
			i.Tags = tags[n]
			slices.Sort(i.Tags)
			i.Tags = slices.Compact(i.Tags)
			all = append(all, i)
		}
	}
	return all, nil
}

// selectImageTags is the statement of tagsOfImages.
func selectImageTags(e store.Engine, numbers []int64) (text string, args []any) {
	q := store.Query{Engine: e}
	text = fmt.Sprintf(`SELECT i.number, t.name FROM %s AS s CROSS JOIN images AS i CROSS JOIN tags AS t
		WHERE i.number = s.v AND t.digest = i.digest AND t.parent = i.repo
		UNION ALL SELECT i.number, t.name FROM %s AS s CROSS JOIN images AS i CROSS JOIN manifest_refs AS r
		CROSS JOIN tags AS t WHERE i.number = s.v AND r.repo = i.repo AND r.child = i.digest AND t.digest = r.digest
		AND t.parent = r.repo LIMIT %s`, e.Unnest(&q, numbers), e.Unnest(&q, numbers), q.Arg(maxImageTags))
	return text, q.Args
}

func (s *Store) tagsOfImages(ctx context.Context, numbers []int64) (map[int64][]string, error) {
	text, args := selectImageTags(s.Engine, numbers)
	all := map[int64][]string{}
	return all, s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
		var number int64
		var name string
		err := row.Scan(&number, &name)
		all[number] = append(all[number], name)
		return false, err
	})
}

// TagsOf returns the tags that stand for manifests of a repo, or for an index that lists
// them. If there are more than can be read, there are none: whoever asks whether all tags
// are of some kind must not be told of a part.
func (s *Store) TagsOf(ctx context.Context, repo resource.UID, digests []string) (map[string][]string, error) {
	q := store.Query{Engine: s.Engine}
	seg := q.Arg(store.Segment(repo))
	text := fmt.Sprintf(`SELECT s.v, t.name FROM %s AS s CROSS JOIN tags AS t WHERE t.digest = s.v AND t.parent = %s
		UNION SELECT s.v, t.name FROM %s AS s CROSS JOIN manifest_refs AS r CROSS JOIN tags AS t
		WHERE r.repo = %s AND r.child = s.v AND t.digest = r.digest AND t.parent = r.repo LIMIT %s`,
		s.Engine.Unnest(&q, digests), seg, s.Engine.Unnest(&q, digests), seg, q.Arg(maxImageTags+1))
	all, n := map[string][]string{}, 0
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var digest, name string
		err := row.Scan(&digest, &name)
		all[digest] = append(all[digest], name)
		n++
		return false, err
	})
	if n > maxImageTags {
		return nil, err
	}
	return all, err
}

// ListedBy returns the digests of what an index of a repo lists, at most n.
func (s *Store) ListedBy(ctx context.Context, repo resource.UID, index string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT child FROM manifest_refs WHERE repo = $1 AND digest = $2
		AND child IS NOT NULL ORDER BY child LIMIT $3`, store.Segment(repo), index, n)
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
			if err := t.enqueue(ctx, u.repo, u.digest, rankAgain); err != nil {
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
	return t.forgetImages(ctx, repo, digest)
}

func (s *Store) queueOutdated(ctx context.Context, extractors int) (int, error) {
	n, err := s.Exec(ctx, `UPDATE images SET due_ms = `+s.Engine.Clock+`, rank = $2, tries = 0 WHERE (repo, digest) IN (
		SELECT repo, digest FROM images WHERE extractors < $1 AND due_ms IS NULL LIMIT $3)`, extractors, rankAgain, sweepBatch)
	return int(n), err
}
