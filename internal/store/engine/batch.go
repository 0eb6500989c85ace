package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// maxBatch is the largest number of writes that share one commit. It limits how long
// the first of them waits for the last.
const maxBatch = 64

// A batcher is the committer for SQLite, which has one writer. Writes that arrive
// during a commit share the next commit. Each write except the first has its own
// savepoint, so that a failed write can be undone alone.
type batcher struct {
	on        *writer
	committed func(ctx context.Context, revision int64)
	queue     chan *queuedWrite
	quit      chan struct{}
	done      chan struct{}
	once      sync.Once
}

type queuedWrite struct {
	ctx  context.Context
	tx   Transaction
	err  error
	done chan struct{}

	waiting, committing *trace.Span
}

// newBatcher returns a batcher that writes on a connection. After every commit it
// calls committed with the highest revision that the transactions wrote.
func newBatcher(on *sql.Conn, committed func(ctx context.Context, revision int64)) *batcher {
	b := &batcher{
		on: &writer{statementCache{on: on}}, committed: committed,
		queue: make(chan *queuedWrite, maxBatch), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go b.loop()
	return b
}

var errClosed = errors.New("the store is closed")

// run queues a transaction and waits for its result. A queued transaction runs to
// its end even if ctx ends, because it shares its commit with others.
func (b *batcher) run(ctx context.Context, t Transaction) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &queuedWrite{ctx: context.WithoutCancel(ctx), tx: t, done: make(chan struct{})}
	w.waiting = trace.Leaf(ctx, "wait for the writer")
	select {
	case b.queue <- w:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.quit:
		return errClosed
	}
	select {
	case <-w.done:
		return w.err
	case <-b.done:
		select {
		case <-w.done:
			return w.err
		default:
			return errClosed
		}
	}
}

// stop ends the loop after the running commit.
func (b *batcher) stop() error {
	b.once.Do(func() { close(b.quit) })
	<-b.done
	return b.on.prepared.close()
}

func (b *batcher) loop() {
	defer close(b.done)
	for {
		select {
		case w := <-b.queue:
			b.commitBatch(b.fill(w))
		case <-b.quit:
			return
		}
	}
}

// fill returns a batch that contains first and the writes that are already waiting.
func (b *batcher) fill(first *queuedWrite) []*queuedWrite {
	batch := []*queuedWrite{first}
	for len(batch) < maxBatch {
		select {
		case w := <-b.queue:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commitBatch commits a batch and wakes the callers. If the commit fails, every
// write gets the error.
func (b *batcher) commitBatch(batch []*queuedWrite) {
	ctx := context.Background()
	revision, err := b.transact(ctx, batch)
	if err == nil {
		b.committed(ctx, revision)
	}
	for _, w := range batch {
		w.committing.End(err)
		if err != nil {
			w.err = err
		}
		close(w.done)
	}
}

func (b *batcher) transact(ctx context.Context, batch []*queuedWrite) (revision int64, _ error) {
	if _, err := b.on.Exec(ctx, `BEGIN IMMEDIATE`, nil); err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	for i, w := range batch {
		rev, err := b.runOne(w, i > 0)
		if err != nil {
			b.rollback(ctx)
			return 0, err
		}
		revision = max(revision, rev)
	}
	if _, err := b.on.Exec(ctx, `COMMIT`, nil); err != nil {
		b.rollback(ctx)
		return 0, fmt.Errorf("commit: %w", err)
	}
	return revision, nil
}

// rollback ends the transaction, unless a failure has already ended it.
func (b *batcher) rollback(ctx context.Context) {
	_, _ = b.on.Exec(ctx, `ROLLBACK`, nil)
}

// runOne runs a write. The error that it returns makes the whole batch fail; an error
// that concerns only the write is in w.err. The first write of a batch has no
// savepoint, because with a savepoint SQLite copies every page before it changes the
// page. If the first write fails, runOne rolls back the transaction, which contains
// nothing else, and begins a new one.
func (b *batcher) runOne(w *queuedWrite, saved bool) (revision int64, _ error) {
	if saved {
		if _, err := b.on.Exec(w.ctx, `SAVEPOINT job`, nil); err != nil {
			return 0, fmt.Errorf("savepoint: %w", err)
		}
	}
	w.waiting.End(nil)
	defer func() { w.committing = SQLite.Span(w.ctx, `COMMIT`) }()
	if w.err = b.runRecovering(w); w.err != nil {
		if sqliteFailure(w.err) == Outage { // SQLite may have ended the transaction
			return 0, w.err
		}
		if err := b.undo(w.ctx, saved); err != nil {
			return 0, fmt.Errorf("undo: %w", err)
		}
	} else {
		revision = w.tx.Revision()
	}
	if !saved {
		return revision, nil
	}
	if _, err := b.on.Exec(w.ctx, `RELEASE job`, nil); err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	return revision, nil
}

func (b *batcher) undo(ctx context.Context, saved bool) error {
	if saved {
		_, err := b.on.Exec(ctx, `ROLLBACK TO job`, nil)
		return err
	}
	if _, err := b.on.Exec(ctx, `ROLLBACK`, nil); err != nil {
		return err
	}
	_, err := b.on.Exec(ctx, `BEGIN IMMEDIATE`, nil)
	return err
}

// runRecovering runs the statements of a write and turns a panic into an error, so
// that a bug in one write does not end the writer.
func (b *batcher) runRecovering(w *queuedWrite) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v", p)
		}
	}()
	return w.tx.Run(w.ctx, b.on)
}

// A writer is the only SQLite connection that writes. It ignores the end of a
// context: SQLite would roll back the transaction of an interrupted statement,
// and several writes share that transaction.
type writer struct{ prepared statementCache }

// Exec implements Conn.
func (w *writer) Exec(ctx context.Context, query string, args []any) (int64, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query implements Conn.
func (w *writer) Query(ctx context.Context, query string, args []any) (Rows, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}
