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
	pullQueue = 8192 // pulls that are not written yet; further ones are dropped
	pullBatch = 256
	batchWait = time.Second // how long a pull waits for others in its batch
	maxAgent  = 256
)

// A pullLog records pulls and pushes asynchronously, in batches.
type pullLog struct {
	store   *registrydb.Store
	log     *slog.Logger
	queue   chan *resource.Pull // pointers, because it is mostly empty
	counter *pullCounter
	dropped atomic.Int64
	unnoted int64 // that were dropped, and are not noted in the database either
}

func newPullLog(s *registrydb.Store, log *slog.Logger) *pullLog {
	return &pullLog{store: s, log: log, queue: make(chan *resource.Pull, pullQueue), counter: newPullCounter()}
}

// add records what a request did. public is true if everybody may make that
// request. It never waits: if the database cannot keep up, records are dropped.
func (l *pullLog) add(req *http.Request, repo resource.UID, public bool, p resource.Pull) {
	p.UID = repo.NewRisingChild(p.Time) // in order, also within a millisecond
	p.Remote = resource.HostOf(req.RemoteAddr)
	p.Agent = strings.ToValidUTF8(req.UserAgent(), "?")
	p.Agent = strings.ToValidUTF8(p.Agent[:min(len(p.Agent), maxAgent)], "")
	if c, ok := authz.CallerFrom(req.Context()); ok {
		p.Identity = c.Identity
	}
	if public {
		first, dropped := l.counter.add(&p)
		if dropped {
			l.dropped.Add(1)
		}
		if !first {
			return
		}
	}
	select {
	case l.queue <- &p:
	default:
		l.dropped.Add(1)
	}
}

// run writes batches until ctx ends.
func (l *pullLog) run(ctx context.Context) error {
	counts := time.NewTicker(countTime)
	defer counts.Stop()
	for {
		select {
		case p := <-l.queue:
			l.write(ctx, l.gather(ctx, p))
		case <-counts.C:
			l.writeCounts(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Flush writes the pulls that are queued. It is called after the last request.
func (r *Registry) Flush(ctx context.Context) {
	r.pulls.writeCounts(ctx)
	for {
		select {
		case p := <-r.pulls.queue:
			done, cancel := context.WithCancel(ctx)
			cancel() // do not wait for more
			r.pulls.write(ctx, r.pulls.gather(done, p))
		default:
			return
		}
	}
}

// gather returns a batch of first and the pulls that are queued within batchWait.
func (l *pullLog) gather(ctx context.Context, first *resource.Pull) []resource.Pull {
	batch := []resource.Pull{*first}
	wait := time.NewTimer(batchWait)
	defer wait.Stop()
	for len(batch) < pullBatch {
		select {
		case p := <-l.queue:
			batch = append(batch, *p)
			continue
		default:
		}
		select {
		case p := <-l.queue:
			batch = append(batch, *p)
		case <-wait.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// writeCounts stores the records of the pulls that were counted.
func (l *pullLog) writeCounts(ctx context.Context) {
	for batch := range slices.Chunk(l.counter.drain(), pullBatch) {
		l.write(ctx, batch)
	}
}

// write stores a batch. If that fails, the batch is dropped and logged.
func (l *pullLog) write(ctx context.Context, batch []resource.Pull) {
	if err := l.store.InsertPulls(context.WithoutCancel(ctx), batch); err != nil {
		for _, p := range batch {
			l.dropped.Add(1 + p.More)
		}
		l.log.WarnContext(ctx, "pulls were not recorded", "err", err)
	}
	if n := l.dropped.Swap(0); n > 0 {
		l.log.WarnContext(ctx, "pulls were not recorded", "count", n)
		if err := l.store.NoteLostPulls(context.WithoutCancel(ctx), n+l.unnoted); err != nil {
			l.unnoted += n // noted with the next
			return
		}
		l.unnoted = 0
	}
}
