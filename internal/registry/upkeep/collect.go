package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

// UploadAge is how long an upload may be idle before the collector deletes it. It is also how old a file must be
// before the collector deletes it because nothing refers to it.
const UploadAge = 24 * time.Hour

// collectBatch is the number of rows that one transaction of the collector changes.
const collectBatch = 200

// Collection configures a garbage collection.
type Collection struct {
	// Grace is how long a blob stays in a repo after the collector first found that no manifest there needs it,
	// because a running push may rely on the blob.
	Grace     time.Duration
	UploadAge time.Duration // how long an upload may be idle; 0 means the constant UploadAge
	KeepPulls time.Duration // how long pulls stay in the log; 0 means forever
	KeepMoves time.Duration // how long the history of tags is kept; 0 means forever
	DryRun    bool          // whether to count garbage without deleting it
}

// Collected counts what a collection has deleted or, in a dry run, would delete.
type Collected struct {
	Uploads int   `json:"uploads"` // abandoned uploads
	Links   int   `json:"links"`   // blobs that were removed from a repo that did not need them
	Blobs   int   `json:"blobs"`   // blobs that were in no repo
	Bytes   int64 `json:"bytes"`   // total size of the blobs that were in no repo
	Files   int   `json:"files"`   // files that belong to no blob and no upload
	Pulls   int   `json:"pulls"`   // records of pulls that were older than KeepPulls
	Moves   int   `json:"moves"`   // moves of tags that were older than KeepMoves
	Trash   int   `json:"trash"`   // entries of the trash that had expired or that nobody could restore
}

// Collect deletes content to which nothing refers. It can run concurrently with pushes, pulls, mounts and other
// collectors. All its state is in the store, so the next run continues a run that was interrupted.
func (m *Maintainer) Collect(ctx context.Context, c Collection) (Collected, error) {
	removed, err := m.collect(ctx, c)
	if !c.DryRun {
		m.count(removed, err)
	}
	return removed, err
}

// count adds a run of the collector to the metrics. It does not count a run that was canceled.
func (m *Maintainer) count(removed Collected, err error) {
	outcome := metric.OK
	if err != nil {
		outcome = metric.Failed
	}
	if !errors.Is(err, context.Canceled) {
		m.Metrics.CollectRun.Add(1, outcome)
	}
	total := m.Metrics.Collected
	total.Add(int64(removed.Uploads), "uploads")
	total.Add(int64(removed.Links), "links")
	total.Add(int64(removed.Blobs), "blobs")
	total.Add(removed.Bytes, "bytes")
	total.Add(int64(removed.Files), "files")
	total.Add(int64(removed.Pulls), "pulls")
	total.Add(int64(removed.Moves), "moves")
	total.Add(int64(removed.Trash), "trash")
}

func (m *Maintainer) collect(ctx context.Context, c Collection) (Collected, error) {
	c.UploadAge = cmp.Or(c.UploadAge, UploadAge)
	g := &collector{Maintainer: m, garbage: gcdb.New(m.Store.DB), Collection: c, now: m.Now()}
	steps := []func(context.Context) error{g.uploads, g.trash, g.links, g.blobs, g.files, g.prune, g.moves}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return g.collected, fmt.Errorf("collect: %w", err)
		}
	}
	return g.collected, nil
}

type collector struct {
	*Maintainer
	Collection
	garbage   *gcdb.Store
	now       time.Time
	collected Collected
	idle      map[string]int // number of repos that do not need a blob, by digest; only in a dry run
}

// uploads deletes the uploads that are idle for longer than UploadAge.
func (g *collector) uploads(ctx context.Context) error {
	before, last := g.now.Add(-g.UploadAge), ""
	for {
		ids, err := g.Store.StaleUploads(ctx, last, before, collectBatch)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			last = id
			if err := g.deleteUpload(ctx, id, before); err != nil {
				return err
			}
		}
	}
}

func (g *collector) deleteUpload(ctx context.Context, id string, before time.Time) error {
	if !g.Uploads.Lock(id) {
		return nil // a request is writing to the upload
	}
	defer g.Uploads.Unlock(id)
	if g.DryRun {
		g.collected.Uploads++
		return nil
	}
	dropped, err := g.Store.DropUpload(ctx, id, before)
	if err != nil || !dropped {
		return err
	}
	g.collected.Uploads++
	return g.Uploads.DiscardUpload(ctx, id)
}

// trash removes entries of the trash that have expired or that nobody can restore.
func (g *collector) trash(ctx context.Context) (err error) {
	if g.DryRun {
		g.collected.Trash, err = g.Store.CountExpired(ctx, g.now)
		return err
	}
	for _, step := range []func(context.Context, int) (int, error){
		func(ctx context.Context, n int) (int, error) { return g.Store.ExpireTrash(ctx, g.now, n) },
		g.garbage.SweepTrashBlobs,
	} {
		for {
			n, err := step(ctx, collectBatch)
			g.collected.Trash += n
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

// links marks the blobs that no manifest of their repo needs. It removes blobs from their repo that were marked
// longer ago than Grace.
func (g *collector) links(ctx context.Context) error {
	pushed := g.now.Add(-g.Grace)
	g.idle = map[string]int{}
	var from *gcdb.RepoBlob
	for {
		idle, next, err := g.garbage.IdleBlobs(ctx, from, pushed, collectBatch)
		if err != nil {
			return err
		}
		if g.DryRun {
			for _, h := range idle {
				g.idle[h.Digest]++
			}
			g.collected.Links += len(idle)
		} else if len(idle) > 0 {
			if err := g.garbage.MarkIdle(ctx, idle, g.now); err != nil {
				return err
			}
		}
		if next == nil {
			break
		}
		from = next
	}
	for !g.DryRun {
		examined, removed, err := g.garbage.UnlinkIdle(ctx, pushed, collectBatch)
		g.collected.Links += removed
		if err != nil || examined == 0 {
			return err
		}
	}
	return nil
}

// blobs deletes the blobs that are in no repo: first the row, then the bytes. If the server crashes in between, the
// method files later deletes the bytes.
func (g *collector) blobs(ctx context.Context) error {
	for last := ""; ; {
		unheld, err := g.garbage.UnheldBlobs(ctx, last, collectBatch)
		if err != nil {
			return err
		}
		if len(unheld) == 0 {
			break
		}
		last = unheld[len(unheld)-1].Digest
		if !g.DryRun {
			if unheld, err = g.garbage.PurgeUnheld(ctx, unheld); err != nil {
				return err
			}
		}
		for _, b := range unheld {
			if err := g.dropBlob(ctx, b); err != nil {
				return err
			}
		}
	}
	for digest, n := range g.idle {
		if err := g.countIdle(ctx, digest, n); err != nil {
			return err
		}
	}
	return nil
}

func (g *collector) dropBlob(ctx context.Context, b registry.Blob) error {
	g.collected.Blobs++
	g.collected.Bytes += b.Size
	if g.DryRun {
		return nil
	}
	return g.Uploads.RemoveBlob(ctx, b.Path)
}

// countIdle is called in a dry run for a blob that n repos do not need. It counts the blob as deleted if no other
// repo has it and the trash does not need it.
func (g *collector) countIdle(ctx context.Context, digest string, n int) error {
	holders, err := g.Store.BlobHolders(ctx, digest, n+1)
	if err != nil || len(holders) != n {
		return err
	}
	kept, err := g.garbage.TrashNeeds(ctx, digest)
	if err != nil || kept {
		return err
	}
	b, err := g.Store.StoredBlob(ctx, digest)
	if err != nil {
		return err
	}
	return g.dropBlob(ctx, b)
}

// files deletes the files that belong to no blob and no upload. Such a file remains if a push fails after its bytes
// are written and before it commits, or if a server is killed while it writes the file.
func (g *collector) files(ctx context.Context) error {
	err := g.sweep(ctx, g.Uploads.Walk, g.garbage.UnreferencedPaths, g.Uploads.RemoveBlob)
	if err != nil {
		return err
	}
	return g.sweep(ctx, g.Uploads.Unfinished, g.garbage.EndedUploads, g.Uploads.Abort)
}

// sweep deletes the files that walk finds, if they are old and nothing refers to them.
func (g *collector) sweep(
	ctx context.Context, walk func(ctx context.Context, dir string, each func(blob.File) error) error,
	unneeded func(ctx context.Context, paths map[string]string) ([]string, error),
	remove func(ctx context.Context, path string) error,
) error {
	old := g.now.Add(-g.UploadAge)
	batch := map[string]string{}
	check := func() error {
		unnamed, err := unneeded(ctx, batch)
		if err != nil {
			return err
		}
		for _, p := range unnamed {
			g.collected.Files++
			if g.DryRun {
				continue
			}
			if err := remove(ctx, p); err != nil {
				return err
			}
		}
		clear(batch)
		return nil
	}
	err := walk(ctx, upload.Folder, func(f blob.File) error {
		if f.ModTime.After(old) {
			return nil
		}
		batch[f.Path] = path.Base(f.Path)
		if len(batch) < collectBatch {
			return nil
		}
		return check()
	})
	if err != nil {
		return err
	}
	return check()
}

// prune deletes records of pulls that are older than KeepPulls.
func (g *collector) prune(ctx context.Context) error {
	for g.KeepPulls > 0 && !g.DryRun {
		n, err := g.Store.PrunePulls(ctx, g.now.Add(-g.KeepPulls), collectBatch)
		g.collected.Pulls += n
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// historyBatch is the number of moves of tags that one query examines.
const historyBatch = 1000

// moves deletes moves of tags that are older than KeepMoves.
func (g *collector) moves(ctx context.Context) error {
	if g.KeepMoves <= 0 || g.DryRun {
		return nil
	}
	for last := int64(0); ; {
		next, n, err := g.Store.PruneTagHistory(ctx, g.now.Add(-g.KeepMoves), last, historyBatch)
		g.collected.Moves += n
		if err != nil || next == 0 {
			return err
		}
		last = next
	}
}
