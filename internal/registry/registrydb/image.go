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

// Ranks of images in the queue of inspections, which all replicas share. Images that were just pushed have a lower
// rank, and come before images that are inspected again.
const (
	RankPushed = iota
	RankAgain
	Ranks // the number of ranks
)

// queueImage queues the inspection of a manifest that was pushed, if it is an image. If the image already has a row,
// it does nothing.
func (t Tx) queueImage(ctx context.Context, repo resource.UID, m registry.Manifest) error {
	if !m.IsImage() {
		return nil
	}
	t.Wakes(store.InspectionQueue)
	return t.Later(ctx, `INSERT INTO images
			(repo, digest, root, uid, state, reason, extractors, tries, rank, due_ms, update_ms)
		VALUES ($1, $2, $3, $4, $5, '', 0, 0, $6, `+t.DB.Engine.Clock+`, $7) ON CONFLICT (repo, digest) DO NOTHING`,
		store.Segment(repo), m.Digest, store.Segment(repo.Root()), string(repo), int(registry.ImageWaiting), RankPushed,
		store.MS(t.DB.Time()))
}

// LockChunks locks the chunks that contain the images with these numbers until the commit, in rising order.
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

// chunksOf returns the chunks that contain the images with these numbers, in rising order.
func chunksOf(numbers []int64) (chunks []int64) {
	for _, n := range numbers {
		chunk, _ := bitmap.At(n)
		chunks = append(chunks, chunk)
	}
	slices.Sort(chunks)
	return slices.Compact(chunks)
}

// ChangeGroupImages applies change to the bitmaps of a chunk for a repo and for the groups above it. These bitmaps
// say which images the repo and the groups have. The caller has locked the chunk.
func (t Tx) ChangeGroupImages(ctx context.Context, repo resource.UID, chunk int64, change func(*bitmap.Set)) error {
	holders := []int64{store.Segment(repo)}
	for _, g := range repo.Ancestors() {
		holders = append(holders, store.Segment(g))
	}
	q := store.Query{Engine: t.DB.Engine}
	have, err := store.ReadMap[int64, []byte](ctx, t.Rows, fmt.Sprintf(`SELECT g.grp, g.bits FROM %s AS s
		CROSS JOIN group_images AS g WHERE g.grp = s.v AND g.chunk = %s`,
		t.DB.Engine.Unnest(&q, holders), q.Arg(chunk)), q.Args...)
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

// ForgetImages removes an image of a repo, or all its images if digest is "", from the queue and from the bitmaps of
// groups. The packages of the images stay stored until a sweep removes them.
func (t Tx) ForgetImages(ctx context.Context, repo resource.UID, digest string) error {
	text, sboms, args := `DELETE FROM images WHERE repo = $1`, `DELETE FROM image_sboms WHERE repo = $1`,
		[]any{store.Segment(repo)}
	if digest != "" {
		text, sboms, args = text+` AND digest = $2`, sboms+` AND image = $2`, append(args, digest)
	}
	removed, err := store.ReadColumn[*int64](ctx, t.Rows, text+` RETURNING number`, args...)
	if err != nil {
		return err
	}
	if err := t.Later(ctx, sboms, args...); err != nil {
		return err
	}
	var numbers []int64
	gone := map[int64]*bitmap.Set{}
	for _, n := range removed {
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

// documentTag matches the tags that clients use to attach documents to an image.
var documentTag = regexp.MustCompile(`^(sha256)-([0-9a-f]{64})(\.att|\.sbom)?$`)

// queueSBOMs queues images of a repo whose attached documents have changed. Digests that are "" or not images are
// ignored. All documents of a queued image are read again, so that the order of the changes does not matter.
func (t Tx) queueSBOMs(ctx context.Context, repo resource.UID, images ...string) error {
	slices.Sort(images) // every transaction locks images in this order, which prevents deadlocks
	for _, image := range slices.Compact(images) {
		if image == "" {
			continue
		}
		t.Wakes(store.DocumentQueue)
		if err := t.Later(ctx, `UPDATE images SET sbom_due_ms = `+t.DB.Engine.Clock+`, sbom_rank = $3
			WHERE repo = $1 AND digest = $2`, store.Segment(repo), image, RankPushed); err != nil {
			return err
		}
	}
	return nil
}

// queueTagged is queueSBOMs for a tag that is created, moved or deleted.
func (t Tx) queueTagged(ctx context.Context, repo resource.UID, tag string) error {
	m := documentTag.FindStringSubmatch(tag)
	if m == nil {
		return nil
	}
	return t.queueSBOMs(ctx, repo, m[1]+":"+m[2])
}

// queueBereft is queueSBOMs for a manifest that is being removed: a document, or an index that lists documents about
// its images. It does not rely on the stored results of reading these documents, because a replica may be reading
// them at this moment.
func (t Tx) queueBereft(ctx context.Context, repo resource.UID, digest string) error {
	images, err := store.ReadColumn[string](ctx, t.Rows, `SELECT subject FROM manifests WHERE repo = $1 AND digest = $2
		UNION SELECT i.digest FROM manifest_refs AS r CROSS JOIN images AS i WHERE r.repo = $1 AND r.digest = $2
		AND i.repo = r.repo AND i.digest = r.child`, store.Segment(repo), digest)
	if err != nil {
		return err
	}
	return t.queueSBOMs(ctx, repo, images...)
}
