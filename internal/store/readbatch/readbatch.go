// Package readbatch answers concurrent reads with common statements.
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

// Limits of a Batcher.
const (
	maxBatch     = 32                    // reads in one statement
	batchTimeout = 30 * time.Second      // for a statement that serves several reads
	startDelay   = 50 * time.Millisecond // before another statement starts although one is running: it may be stuck
	maxRuns      = 8                     // statements that run at the same time
)

// A Batcher answers several concurrent reads of one kind with one statement on
// PostgreSQL, because a round trip costs more than the read. SQLite gets one
// statement for each read. A read never waits for a batch to fill: if no statement
// is running, it is sent immediately. Reads that arrive while a statement is
// running are sent together when it has ended. It is safe for concurrent use.
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

// A Result is the result of one read of a batch.
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

// Read performs a read. Its result is as new as if it had a statement of its own,
// because a batch never joins a statement that is already running.
func (b *Batcher[Q, A]) Read(ctx context.Context, query Q) (A, error) {
	if !b.db.Engine.Postgres || store.InSimulation(ctx) {
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

// finishOwn ends the statement of a read that did not wait. If reads are waiting,
// another goroutine sends them, because the caller has its result already.
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

// run performs a batch of reads. If their common statement fails although the
// database is available, each read gets a statement of its own, because one bad
// read must not fail the others.
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
