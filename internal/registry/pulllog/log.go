// Package pulllog records pulls and pushes.
package pulllog

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

const (
	pullQueue = 8192        // records that wait to be written; further records are dropped
	pullBatch = 256         // records per transaction
	batchWait = time.Second // longest time that a record waits for its batch to fill

	// alikePulls is the number of equal pulls in one batch that get a record each. The last of these records counts
	// all further pulls. Otherwise, a client that pulls in a loop, or many clients behind one address, would make so
	// many records that they cost more than the pulls.
	alikePulls = 8

	maxAgent = 256
)

// A Log records pulls and pushes asynchronously, in batches.
type Log struct {
	store   *registrydb.Store
	lost    *pulldb.Store
	log     *slog.Logger
	counter *pullCounter
	dropped atomic.Int64
	unnoted int64 // number of dropped pulls that is not yet stored in the database

	full chan struct{} // receives a value when a batch is full

	mu      sync.Mutex
	waiting []registry.Pull
	alike   map[registry.Pull]alike // queued records of equal pulls; the key is the pull without its time
}

// alike describes the queued records of equal pulls: their number, and the index of the last one in Log.waiting.
type alike struct{ records, last int }

// New returns a Log that writes to s. The caller must also call Run.
func New(s *registrydb.Store, log *slog.Logger) *Log {
	return &Log{
		store: s, lost: pulldb.New(s.DB), log: log, counter: newPullCounter(), full: make(chan struct{}, 1),
		alike: map[registry.Pull]alike{},
	}
}

// Add records a pull or a push. public is true if the caller is allowed only because the repo is public. Then the
// record has no address if it has an identity, because the organization of the repo must not learn where the people and
// workloads of others are. Add never waits: if the database cannot keep up, records are dropped.
func (l *Log) Add(req *http.Request, repo resource.UID, public bool, p registry.Pull) {
	p.Remote = resource.HostOf(req.RemoteAddr)
	p.Agent = strings.ToValidUTF8(req.UserAgent(), "?")
	p.Agent = strings.ToValidUTF8(p.Agent[:min(len(p.Agent), maxAgent)], "")
	if c, ok := authz.CallerFrom(req.Context()); ok {
		p.Identity = c.Identity
	}
	if public {
		if p.Identity != "" {
			p.Remote = ""
		}
		p.UID = repo.NewRisingChild(p.Time)
		first, dropped := l.counter.add(&p)
		if dropped {
			l.dropped.Add(1)
		}
		if !first {
			return
		}
	}
	l.enqueue(repo, p)
}

// Record records a pull that the server has made for the identity in p. It never waits.
func (l *Log) Record(repo resource.UID, p registry.Pull) { l.enqueue(repo, p) }

// enqueue adds a record of p to the queue, or counts p in a queued record of equal pulls.
func (l *Log) enqueue(repo resource.UID, p registry.Pull) {
	kind := p
	kind.UID, kind.Time = repo, time.Time{}
	l.mu.Lock()
	defer l.mu.Unlock()
	equal := l.alike[kind]
	if equal.records == alikePulls {
		last := &l.waiting[equal.last]
		last.More++
		last.Time = p.Time
		return
	}
	if len(l.waiting) >= pullQueue {
		l.dropped.Add(1)
		return
	}
	p.UID = repo.NewRisingChild(p.Time) // a UID that sorts after earlier ones, even within a millisecond
	l.alike[kind] = alike{equal.records + 1, len(l.waiting)}
	if l.waiting = append(l.waiting, p); len(l.waiting) >= pullBatch {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// take removes all records from the queue and returns them.
func (l *Log) take() []registry.Pull {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := l.waiting
	l.waiting = nil
	clear(l.alike)
	return records
}

// Run writes batches until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	counts, wait := time.NewTicker(countTime), time.NewTicker(batchWait)
	defer counts.Stop()
	defer wait.Stop()
	for {
		select {
		case <-l.full:
			l.writeAll(ctx, l.take())
		case <-wait.C:
			l.writeAll(ctx, l.take())
		case <-counts.C:
			l.writeAll(ctx, l.counter.drain())
		case <-ctx.Done():
			return nil
		}
	}
}

// Flush writes the queued records. It must be called after the last request.
func (l *Log) Flush(ctx context.Context) {
	l.writeAll(ctx, l.counter.drain())
	l.writeAll(ctx, l.take())
}

// writeAll stores records in batches.
func (l *Log) writeAll(ctx context.Context, all []registry.Pull) {
	for batch := range slices.Chunk(all, pullBatch) {
		l.write(ctx, batch)
	}
	l.noteDropped(ctx)
}

// write stores a batch. If that fails, the batch is dropped and logged.
func (l *Log) write(ctx context.Context, batch []registry.Pull) {
	err := l.store.InsertPulls(context.WithoutCancel(ctx), batch)
	if err == nil {
		return
	}
	for _, p := range batch {
		l.dropped.Add(1 + p.More)
	}
	l.log.WarnContext(ctx, "pulls were not recorded", "err", err)
}

// noteDropped stores the number of pulls that were dropped since its last call. If that fails, the next call tries
// again.
func (l *Log) noteDropped(ctx context.Context) {
	if n := l.dropped.Swap(0); n > 0 {
		l.log.WarnContext(ctx, "pulls were not recorded", "count", n)
		l.unnoted += n
	}
	if l.unnoted == 0 {
		return
	}
	if err := l.lost.NoteLostPulls(context.WithoutCancel(ctx), l.unnoted); err == nil {
		l.unnoted = 0
	}
}
