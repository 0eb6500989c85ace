package registry

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/distribution/distribution/v3/registry/storage/driver"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/registrydb"
)

// UploadAge is how long an upload may rest before it is given up, and how old a
// file must be before it is taken for lost.
const UploadAge = 24 * time.Hour

// collectBatch is how much one transaction of the collector takes on.
const collectBatch = 200

// Collection is how garbage is collected.
type Collection struct {
	// Grace is how long a blob stays in a repo after the collector first saw
	// that no manifest there needs it, so that a push under way finds what it
	// was told is there.
	Grace     time.Duration
	UploadAge time.Duration // 0 is UploadAge
	KeepPulls time.Duration // how long the log of pulls goes back; 0 is for ever
	DryRun    bool          // only count
}

// Collected is what a collection took, or would have taken.
type Collected struct {
	Uploads int   `json:"uploads"` // abandoned
	Links   int   `json:"links"`   // blobs taken from repos that do not need them
	Blobs   int   `json:"blobs"`   // that no repo holds
	Bytes   int64 `json:"bytes"`   // of these blobs
	Files   int   `json:"files"`   // that nothing names
	Pulls   int   `json:"pulls"`   // records too old to keep
}

// Collect removes what nothing refers to. It is safe beside pushes, pulls,
// mounts and other collectors, and one that was interrupted is taken up by the
// next: what it decides by is in the store.
func (r *Registry) Collect(ctx context.Context, c Collection) (Collected, error) {
	if c.UploadAge == 0 {
		c.UploadAge = UploadAge
	}
	g := &collector{Registry: r, Collection: c, now: r.config.Now()}
	for _, step := range []func(context.Context) error{g.uploads, g.links, g.blobs, g.files, g.prune} {
		if err := step(ctx); err != nil {
			return g.took, fmt.Errorf("collect: %w", err)
		}
	}
	return g.took, nil
}

type collector struct {
	*Registry
	Collection
	now  time.Time
	took Collected
	idle map[string]int // in a dry run: digest → repos that do not need it
}

// uploads ends the sessions nobody has written to for long.
func (g *collector) uploads(ctx context.Context) error {
	before, last := g.now.Add(-g.UploadAge), ""
	for {
		ids, err := g.store.StaleUploads(ctx, last, before, collectBatch)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			last = id
			if err := g.giveUp(ctx, id, before); err != nil {
				return err
			}
		}
	}
}

func (g *collector) giveUp(ctx context.Context, id string, before time.Time) error {
	if !g.lock(id) {
		return nil // slow, not stale
	}
	defer g.unlock(id)
	if g.DryRun {
		g.took.Uploads++
		return nil
	}
	dropped, err := g.store.DropUpload(ctx, id, before)
	if err != nil || !dropped {
		return err
	}
	g.took.Uploads++
	return g.storage.discard(ctx, id)
}

// links takes blobs from repos none of whose manifests has needed them for as
// long as the grace, having marked those it sees so for the first time.
func (g *collector) links(ctx context.Context) error {
	pushed := g.now.Add(-g.Grace)
	g.idle = map[string]int{}
	var from *registrydb.Held
	for {
		idle, next, err := g.store.Idle(ctx, from, pushed, collectBatch)
		if err != nil {
			return err
		}
		if g.DryRun {
			for _, h := range idle {
				g.idle[h.Digest]++
			}
			g.took.Links += len(idle)
		} else if len(idle) > 0 {
			if err := g.store.MarkIdle(ctx, idle, g.now); err != nil {
				return err
			}
		}
		if next == nil {
			break
		}
		from = next
	}
	for !g.DryRun {
		looked, took, err := g.store.Unlink(ctx, pushed, collectBatch)
		g.took.Links += took
		if err != nil || looked == 0 {
			return err
		}
	}
	return nil
}

// blobs removes what no repo holds: first the row, then the bytes. If only the
// row went, the bytes are a file that nothing names.
func (g *collector) blobs(ctx context.Context) error {
	for last := ""; ; {
		unheld, err := g.store.Unheld(ctx, last, collectBatch)
		if err != nil {
			return err
		}
		if len(unheld) == 0 {
			break
		}
		last = unheld[len(unheld)-1].Digest
		if !g.DryRun {
			if unheld, err = g.store.Forget(ctx, unheld); err != nil {
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
		if err := g.wouldGo(ctx, digest, n); err != nil {
			return err
		}
	}
	return nil
}

func (g *collector) dropBlob(ctx context.Context, b resource.Blob) error {
	g.took.Blobs++
	g.took.Bytes += b.Size
	if g.DryRun {
		return nil
	}
	return g.storage.remove(ctx, b.Path)
}

// wouldGo counts, in a dry run, a blob that n repos do not need, if no other
// repo holds it.
func (g *collector) wouldGo(ctx context.Context, digest string, n int) error {
	holders, err := g.store.BlobHolders(ctx, digest, n+1)
	if err != nil || len(holders) != n {
		return err
	}
	b, err := g.store.Blob(resource.Rehearse(ctx), holders[0], digest)
	if err != nil {
		return err
	}
	return g.dropBlob(ctx, b)
}

// files removes those that neither a blob nor an upload names: what a crash
// left between the bytes and the transaction that would have spoken of them.
func (g *collector) files(ctx context.Context) error {
	old := g.now.Add(-g.UploadAge)
	batch := map[string]string{}
	sweep := func() error {
		unnamed, err := g.store.Unnamed(ctx, batch)
		if err != nil {
			return err
		}
		for _, p := range unnamed {
			g.took.Files++
			if g.DryRun {
				continue
			}
			if err := g.storage.remove(ctx, p); err != nil {
				return err
			}
		}
		clear(batch)
		return nil
	}
	err := g.storage.walk(ctx, func(f driver.FileInfo) error {
		if f.ModTime().After(old) {
			return nil
		}
		batch[f.Path()] = path.Base(f.Path())
		if len(batch) < collectBatch {
			return nil
		}
		return sweep()
	})
	if err != nil {
		return err
	}
	return sweep()
}

// prune shortens the log of pulls.
func (g *collector) prune(ctx context.Context) error {
	for g.KeepPulls > 0 && !g.DryRun {
		n, err := g.store.PrunePulls(ctx, g.now.Add(-g.KeepPulls), collectBatch)
		g.took.Pulls += n
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}
