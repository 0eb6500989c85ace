package registrydb

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// Ranks of images in the queue of inspections, which all replicas take from. An image that was just pushed comes before
// those that are inspected again.
const (
	RankPushed = iota
	RankAgain
	Ranks // the number of ranks
)

// queueImage puts an image that was pushed into the queue.
func (t Tx) queueImage(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	if !m.IsImage() {
		return nil
	}
	return t.EnqueueImage(ctx, repo, m.Digest, RankPushed)
}

// EnqueueImage puts an image into the queue of inspections, unless it is known already.
func (t Tx) EnqueueImage(ctx context.Context, repo resource.UID, digest string, rank int) error {
	return t.Later(ctx, `INSERT INTO images (repo, digest, root, uid, state, reason, extractors, tries, rank, due_ms, update_ms)
		VALUES ($1, $2, $3, $4, $5, '', 0, 0, $6, `+t.DB.Engine.Clock+`, $7) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), digest, store.Segment(repo.Root()), string(repo), int(registry.ImageWaiting), rank,
		store.MS(t.DB.Time()))
}

// LockChunks locks the chunks of images with these numbers, from the lowest on, until the commit.
func (t Tx) LockChunks(ctx context.Context, numbers []int64) error {
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

// ChangeGroupImages changes the bitmaps of a chunk that say which images a repo and the groups above it have. The caller
// has locked the chunk.
func (t Tx) ChangeGroupImages(ctx context.Context, repo resource.UID, chunk int64, change func(*bitmap.Set)) error {
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

// ForgetImages removes images of a repo, one if a digest is given, from the queue and from
// what groups have. What is known about their content stays until it is swept up.
func (t Tx) ForgetImages(ctx context.Context, repo resource.UID, digest string) error {
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
		if err := t.ChangeGroupImages(ctx, repo, chunk, func(s *bitmap.Set) { s.Minus(set) }); err != nil {
			return err
		}
		if err := t.Later(ctx, `UPDATE image_chunks SET gone = gone + $2 WHERE chunk = $1`, chunk, set.Len()); err != nil {
			return err
		}
	}
	return nil
}

// documentTag matches the tags under which clients attach documents to an image.
var documentTag = regexp.MustCompile(`^(sha256)-([0-9a-f]{64})(\.att|\.sbom)?$`)

// queueSBOMs has the documents looked through of the images that a manifest is about.
func (t Tx) queueSBOMs(ctx context.Context, repo resource.UID, images ...string) error {
	slices.Sort(images) // so that two who queue the same do not wait for each other
	for _, image := range slices.Compact(images) {
		if image == "" {
			continue
		}
		if err := t.Later(ctx, `UPDATE images SET sbom_due_ms = `+t.DB.Engine.Clock+`, sbom_rank = $3
			WHERE repo = $1 AND digest = $2`, store.Segment(repo), image, RankPushed); err != nil {
			return err
		}
	}
	return nil
}

// queueTagged is queueSBOMs for a tag that comes, moves or goes.
func (t Tx) queueTagged(ctx context.Context, repo resource.UID, tag string) error {
	m := documentTag.FindStringSubmatch(tag)
	if m == nil {
		return nil
	}
	return t.queueSBOMs(ctx, repo, m[1]+":"+m[2])
}

// queueBereft is queueSBOMs for a manifest that goes: a document, or an index that lists
// documents about its images. What is known of these documents does not count, because
// somebody may be reading them just now.
func (t Tx) queueBereft(ctx context.Context, repo resource.UID, digest string) error {
	images, err := store.ReadColumn[string](ctx, t.Rows, `SELECT subject FROM manifests WHERE repo = $1 AND digest = $2
		UNION SELECT i.digest FROM manifest_refs AS r CROSS JOIN images AS i WHERE r.repo = $1 AND r.digest = $2
		AND i.repo = r.repo AND i.digest = r.child`, store.Segment(repo), digest)
	if err != nil {
		return err
	}
	return t.queueSBOMs(ctx, repo, images...)
}
