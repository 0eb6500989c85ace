// Package readbatch answers several concurrent reads with one statement.
package readbatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// These are the limits of a Batcher.
const (
	maxBatch     = 32               // most reads in one statement
	batchTimeout = 30 * time.Second // limit for a statement that serves several reads
	// after this delay another statement starts, because the running one may be stuck
	startDelay = 50 * time.Millisecond
	maxRuns    = 8 // most statements that run at the same time
)

// A Batcher answers several concurrent reads with one statement on PostgreSQL,
// because a round trip costs more than the read. On SQLite each read has its own
// statement. A read never waits for a batch to fill: if no statement is running,
// it is sent immediately. Reads that arrive while a statement is running are sent
// together when it has ended. A Batcher is safe for concurrent use.
type Batcher[Q, A any] struct {
	db       *store.DB
	readOne  func(context.Context, Q) (A, error)
	readMany func(context.Context, []Q) ([]Result[A], error)
	delay    time.Duration

	mu      sync.Mutex
	running int
	waiting []*pendingRead[Q, A]
}

// New returns a Batcher. readOne performs a single read. readMany
// performs several. It is called for PostgreSQL only, and must return for each read
// the result that readOne would return.
func New[Q, A any](
	db *store.DB, readOne func(context.Context, Q) (A, error), readMany func(context.Context, []Q) ([]Result[A], error),
) *Batcher[Q, A] {
	return &Batcher[Q, A]{db: db, readOne: readOne, readMany: readMany, delay: startDelay}
}

// A Result is the result of one read in a batch.
type Result[A any] struct {
	Value A
	Err   error
}

type pendingRead[Q, A any] struct {
	ctx    context.Context
	query  Q
	result Result[A]
	done   chan struct{}
}

// Read performs a read. The result is as new as if the read had its own
// statement, because a read never joins a statement that is already running.
func (b *Batcher[Q, A]) Read(ctx context.Context, query Q) (A, error) {
	if !b.db.Engine.Postgres || store.InTransaction(ctx) {
		return b.readOne(ctx, query)
	}
	r := &pendingRead[Q, A]{ctx: ctx, query: query, done: make(chan struct{})}
	b.mu.Lock()
	if b.running == 0 {
		b.running++
		b.mu.Unlock()
		defer b.finishOwn()
		return b.readOne(ctx, query)
	}
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	span := trace.Leaf(ctx, "asked with others")
	defer span.End(nil)
	late := time.NewTimer(b.delay)
	defer late.Stop()
	for {
		select {
		case <-r.done:
			return r.result.Value, r.result.Err
		case <-ctx.Done():
			return *new(A), ctx.Err()
		case <-late.C:
			b.startAnother()
		}
	}
}

// startAnother sends the waiting reads although another statement is running.
func (b *Batcher[Q, A]) startAnother() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 && b.running < maxRuns {
		b.running++
		go b.runWaiting()
	}
}

// finishOwn is called when the statement of a read that did not wait has ended.
// If reads are waiting, another goroutine sends them, because the caller already
// has its result.
func (b *Batcher[Q, A]) finishOwn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		go b.runWaiting()
		return
	}
	b.running--
}

// runWaiting sends batches of the waiting reads until none is waiting.
func (b *Batcher[Q, A]) runWaiting() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), maxBatch)
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.running--
		}
		b.mu.Unlock()
		if n == 0 {
			return
		}
		b.run(batch)
	}
}

// run performs a batch of reads. If the statement for all reads fails although
// the database is available, each read gets its own statement, because one bad
// read must not make the others fail.
func (b *Batcher[Q, A]) run(batch []*pendingRead[Q, A]) {
	var queries []Q
	for _, r := range batch {
		queries = append(queries, r.query)
	}
	var results []Result[A]
	err := error(nil)
	if len(batch) > 1 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), batchTimeout)
		results, err = b.readMany(ctx, queries)
		cancel()
	}
	for i, r := range batch {
		switch {
		case errors.Is(err, fault.Unavailable):
			r.result.Err = err
		case err != nil || len(batch) == 1:
			r.result.Value, r.result.Err = b.readOne(r.ctx, r.query)
		default:
			r.result = results[i]
		}
		close(r.done)
	}
}
