package registry

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/registrydb"
)

const (
	pullsWaiting = 8192 // that are not written yet; more are counted and dropped
	pullBatch    = 256
	pullPause    = time.Second // how long one waits for others to share its write
	maxAgent     = 256
)

// A pullLog writes down who fetched and pushed what, without anybody waiting
// for it.
type pullLog struct {
	store   *registrydb.Store
	log     *slog.Logger
	waiting chan *resource.Pull // pointers: mostly it is empty
	crowd   *crowd
	dropped atomic.Int64
}

func newPullLog(s *registrydb.Store, log *slog.Logger) *pullLog {
	return &pullLog{store: s, log: log, waiting: make(chan *resource.Pull, pullsWaiting), crowd: newCrowd()}
}

// add notes what a request did; stranger is true if it was one that anybody may
// make. It never waits: where the database cannot keep up, records are lost
// rather than pulls slowed down.
func (l *pullLog) add(req *http.Request, repo resource.UID, stranger bool, p resource.Pull) {
	p.UID, p.Remote = repo.NewRisingChild(p.Time), remote(req) // in order, also within a millisecond
	p.Agent = strings.ToValidUTF8(req.UserAgent(), "?")
	p.Agent = strings.ToValidUTF8(p.Agent[:min(len(p.Agent), maxAgent)], "")
	if c, ok := authz.CallerFrom(req.Context()); ok {
		p.Identity = c.Identity
	}
	if stranger {
		first, dropped := l.crowd.add(&p)
		if dropped {
			l.dropped.Add(1)
		}
		if !first {
			return
		}
	}
	select {
	case l.waiting <- &p:
	default:
		l.dropped.Add(1)
	}
}

// run writes batches until ctx ends, and then what is left.
func (l *pullLog) run(ctx context.Context) error {
	turn := time.NewTicker(crowdTime)
	defer turn.Stop()
	for {
		select {
		case p := <-l.waiting:
			l.write(ctx, l.gather(ctx, p))
		case <-turn.C:
			l.writeCrowd(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Flush writes what is waiting. It is for after the last request.
func (r *Registry) Flush(ctx context.Context) {
	r.pulls.writeCrowd(ctx)
	for {
		select {
		case p := <-r.pulls.waiting:
			done, cancel := context.WithCancel(ctx)
			cancel() // do not wait for more
			r.pulls.write(ctx, r.pulls.gather(done, p))
		default:
			return
		}
	}
}

// gather adds to first what comes within the pause.
func (l *pullLog) gather(ctx context.Context, first *resource.Pull) []resource.Pull {
	batch := []resource.Pull{*first}
	pause := time.NewTimer(pullPause)
	defer pause.Stop()
	for len(batch) < pullBatch {
		select {
		case p := <-l.waiting:
			batch = append(batch, *p)
			continue
		default:
		}
		select {
		case p := <-l.waiting:
			batch = append(batch, *p)
		case <-pause.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// writeCrowd stores what was counted of strangers.
func (l *pullLog) writeCrowd(ctx context.Context) {
	for batch := range slices.Chunk(l.crowd.drain(), pullBatch) {
		l.write(ctx, batch)
	}
}

// write stores a batch. One that cannot be stored is lost, and the log says so.
func (l *pullLog) write(ctx context.Context, batch []resource.Pull) {
	if err := l.store.InsertPulls(context.WithoutCancel(ctx), batch); err != nil {
		for _, p := range batch {
			l.dropped.Add(1 + p.More)
		}
		l.log.WarnContext(ctx, "pulls were not recorded", "err", err)
	}
	if n := l.dropped.Swap(0); n > 0 {
		l.log.WarnContext(ctx, "pulls were not recorded", "count", n)
	}
}
