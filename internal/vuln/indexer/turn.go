package indexer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
)

// If the inspection of an image takes longer than a turn, and other tenants wait, the worker hands the image over: the
// inspection continues in its own goroutine, and the worker takes the next image. As many images as there are workers
// can be handed over, at most one for each tenant. If there is no room, the inspection is stopped, its cost is charged,
// and the image waits for a turn. So tenants wait at most a turn for each other, and the number of children is bounded.

const turn = 10 * time.Second

// errTurn is the cause for which the inspection of an image is stopped when other tenants wait.
var errTurn = errors.New("images of other tenants wait")

// longImages are the images that were handed over.
type longImages struct {
	room int // maximum number of images

	mu      sync.Mutex
	tenants map[string]bool // tenants of the images
}

// add adds an image of a tenant. It reports false if there is no room for it.
func (l *longImages) add(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) >= l.room || l.tenants[tenant] {
		return false
	}
	if l.tenants == nil {
		l.tenants = map[string]bool{}
	}
	l.tenants[tenant] = true
	return true
}

func (l *longImages) remove(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tenants, tenant)
}

// take inspects an image. It returns when the image is inspected, or when the image has made room for images of other
// tenants.
func (x *Indexer) take(ctx context.Context, q imagedb.QueuedImage, rest *sync.WaitGroup) error {
	inspecting, stop := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	rest.Go(func() {
		defer stop(nil)
		done <- x.index(inspecting, q)
	})
	for wait := x.cfg.Turn; ; wait = x.cfg.Turn / 10 {
		select {
		case err := <-done:
			return err
		case <-time.After(wait):
		}
		waits, err := x.images.OthersWait(ctx, q)
		if err != nil || !waits { // an error of the database ends the inspection, too
			continue
		}
		tenant := x.images.TenantOf(ctx, q)
		if !x.long.add(tenant) {
			stop(errTurn)
			if err := <-done; !errors.Is(err, context.Canceled) { // canceled while the result was stored
				return err
			}
			return nil
		}
		rest.Go(func() {
			defer x.long.remove(tenant)
			if err := <-done; err != nil && ctx.Err() == nil {
				x.cfg.Log.WarnContext(ctx, "an image is not inspected", "err", err)
			}
		})
		return nil
	}
}
