package imagedb

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// ImageNumbers returns the numbers of the inspected images with a digest, in rising order. It leaves out images that
// were not inspected. Such an image can have a number because of its SBOMs.
func (t Tx) ImageNumbers(ctx context.Context, digest string) ([]int64, error) {
	return store.ReadColumn[int64](ctx, t.Rows,
		`SELECT number FROM images WHERE digest = $1 AND number IS NOT NULL AND state = $2 ORDER BY number`, digest,
		int(registry.ImageIndexed))
}

// LockChunks locks the chunks that contain these numbers, and the chunks in which the images in fresh will get their
// numbers, in rising order.
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
	return registrydb.In(t.Tx).LockChunks(ctx, numbers)
}

// NumberImage returns the number of an image, and locks its chunk. If the image has no number, it gets one; then, if
// the image was just pushed, events will report its findings.
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
	t.Wakes(store.MatchQueue)
	if err := t.Later(ctx, `INSERT INTO image_news (number, root, told, quiet) VALUES ($1, $2, $3, $4)`, n,
		store.Segment(q.Repo.Root()), []byte{}, q.Again); err != nil {
		return 0, err
	}
	chunk, place := bitmap.At(n)
	return n, registrydb.In(t.Tx).ChangeGroupImages(ctx, q.Repo, chunk, func(s *bitmap.Set) { s.Add(place) })
}

// lastChunk returns the last chunk in which an organization has images, or nil.
func (t Tx) lastChunk(ctx context.Context, root resource.UID) (last *int64, _ error) {
	err := t.Row(ctx, `SELECT max(chunk) FROM group_images WHERE grp = $1`, []any{store.Segment(root)}, &last)
	return last, err
}

// nextNumber takes the next number of the last chunk of an organization, or begins a new chunk. A chunk belongs
// to one organization, so that reading its bitmaps does not read the images of other organizations.
func (t Tx) nextNumber(ctx context.Context, root resource.UID) (int64, error) {
	last, err := t.lastChunk(ctx, root)
	for err == nil && last != nil {
		var used int64
		if err := t.Row(ctx, `SELECT t.used FROM image_chunks AS t WHERE t.chunk = $1`+t.DB.Engine.ForDelete, []any{*last},
			&used); err != nil {
			return 0, err
		}
		if used < bitmap.Size {
			number := *last*bitmap.Size + used
			return number, t.Later(ctx, `UPDATE image_chunks SET used = used + 1 WHERE chunk = $1`, *last)
		}
		full := *last // the chunk was full; the transaction that held the lock before may have begun a new one
		if last, err = t.lastChunk(ctx, root); err == nil && *last == full {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	return t.beginChunk(ctx)
}

// beginChunk creates a chunk and takes its first number.
func (t Tx) beginChunk(ctx context.Context) (int64, error) {
	for {
		var next int64
		if err := t.Row(ctx, `SELECT coalesce(max(chunk) + 1, 0) FROM image_chunks`, nil, &next); err != nil {
			return 0, err
		}
		n, err := t.Exec(ctx, `INSERT INTO image_chunks (chunk, used, gone) VALUES ($1, 1, 0)
			ON CONFLICT (chunk) DO NOTHING`, next)
		if err != nil || n == 1 {
			return next * bitmap.Size, err
		}
	}
}

// ImageNumber returns the number and the state of an image. The number is nil if the image has none.
func (t Tx) ImageNumber(ctx context.Context, q QueuedImage) (number *int64, state registry.ImageState, _ error) {
	err := t.Row(ctx, `SELECT number, state FROM images WHERE repo = $1 AND digest = $2`,
		[]any{store.Segment(q.Repo), q.Digest}, &number, &state)
	return number, state, err
}

// LockChunk locks a chunk of images until the commit.
func (t Tx) LockChunk(ctx context.Context, chunk int64) error {
	var one int
	return t.Row(ctx, `SELECT 1 FROM image_chunks AS t WHERE t.chunk = $1`+t.DB.Engine.ForDelete, []any{chunk}, &one)
}

// MarkSwept records that the bitmaps of packages no longer contain deleted images of a chunk.
func (t Tx) MarkSwept(ctx context.Context, chunk int64) error {
	return t.Later(ctx, `UPDATE image_chunks SET gone = 0 WHERE chunk = $1`, chunk)
}
