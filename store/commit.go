package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/resource"
)

// A committer runs f in a transaction and returns when its effects are on disk,
// or f's error when they are undone. moved is the revision f's changes to the
// grants made, or 0.
type committer interface {
	run(ctx context.Context, f func(*Tx) error) error
}

// A tx is a transaction under way.
type Tx struct {
	DB         *DB
	on         conn
	Shard      int         // of the counters: no two writers should share one
	queued     []statement // what goes with the commit
	increments []increment // and what that adds to counters
	events     [][]any     // and to the outbox
	changes    []change    // what the grants of have changed
	revision   int64       // the revision, once written
}

// A deferred statement is one that nothing in its transaction waits for.
type statement struct {
	text string
	args []any
}

// A conn runs statements.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// write runs f in a transaction, again if the database asks for it, and tells
// the watchers of the grants before it returns.
func (s *DB) Write(ctx context.Context, f func(*Tx) error) error {
	const tries = 8
	var err error
	for range tries {
		if err = s.commit.run(ctx, f); s.Engine.failure(err) != conflict {
			break
		}
	}
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return s.outcome(err)
}

// errRehearsed undoes a write that was only to be tried.
var errRehearsed = errors.New("rehearsed")

// finish writes what every transaction ends with, and undoes one that is a
// rehearsal: every check has been made by then, by the database too. The row of
// the revision is locked late, for changes to grants of all groups wait for it.
func (t *Tx) finish(ctx context.Context) error {
	if resource.Rehearsing(ctx) {
		return errRehearsed
	}
	if err := t.writeRevision(ctx); err != nil {
		return err
	}
	if t.DB.Engine.Postgres && t.revision > 0 {
		return t.Later(ctx, `SELECT pg_notify('holdfast_grants', '')`)
	}
	return nil
}

// exec runs a statement and returns how many rows it touched.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := t.on.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// later runs a statement that nothing in the transaction waits for. PostgreSQL
// gets them all with the commit: there a round trip costs more than a
// statement, and the locks of counters are to last no longer than they must.
func (t *Tx) Later(ctx context.Context, query string, args ...any) error {
	if t.DB.Engine.Postgres {
		t.queued = append(t.queued, statement{query, args})
		return nil
	}
	_, err := t.Exec(ctx, query, args...)
	return err
}

// row runs a one-row query. It returns sql.ErrNoRows if there is none.
func (t *Tx) Row(ctx context.Context, query string, args []any, dest ...any) error {
	return t.on.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// QueryRow runs a one-row query whose row a Kind scans.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return t.on.QueryRowContext(ctx, query, args...)
}

// Rows runs a query and calls f for each row.
func (t *Tx) Rows(ctx context.Context, query string, args []any, f func(Scanner) error) error {
	rows, err := t.on.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Reader returns Rows in the form that DB has it.
func (t *Tx) Reader() Reader {
	return func(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
		return t.Rows(ctx, query, args, func(row Scanner) error { _, err := f(row); return err })
	}
}

// maxBatch bounds how many writes share one commit, and so how long the first
// of them waits for the last.
const maxBatch = 64

// A grouped committer runs writes on SQLite's one writer. Writes that arrive
// while another commits share the next commit, each but the first under a
// savepoint of its own: one that fails undoes itself and nobody else.
type batcher struct {
	s     *DB
	on    *writer
	queue chan *queuedWrite
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
}

type queuedWrite struct {
	ctx  context.Context
	f    func(*Tx) error
	err  error
	done chan struct{}
}

func newBatcher(s *DB, on *sql.Conn) *batcher {
	g := &batcher{
		s: s, on: &writer{conn: on, prepared: statements{on: on}},
		queue: make(chan *queuedWrite, maxBatch), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go g.loop()
	return g
}

var errClosed = errors.New("the store is closed")

// run queues f. Once queued it runs to its end, even if ctx is done meanwhile:
// the transaction it would break is shared.
func (g *batcher) run(ctx context.Context, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &queuedWrite{ctx: context.WithoutCancel(ctx), f: f, done: make(chan struct{})}
	select {
	case g.queue <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.quit:
		return errClosed
	}
	select {
	case <-j.done:
		return j.err
	case <-g.done:
		select {
		case <-j.done:
			return j.err
		default:
			return errClosed
		}
	}
}

// stop ends the loop after the commit under way.
func (g *batcher) stop() error {
	g.once.Do(func() { close(g.quit) })
	<-g.done
	return g.on.prepared.close()
}

func (g *batcher) loop() {
	defer close(g.done)
	for {
		select {
		case j := <-g.queue:
			g.commitBatch(g.fill(j))
		case <-g.quit:
			return
		}
	}
}

// gather adds to first whatever is already waiting.
func (g *batcher) fill(first *queuedWrite) []*queuedWrite {
	batch := []*queuedWrite{first}
	for len(batch) < maxBatch {
		select {
		case j := <-g.queue:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// settle commits the batch and lets everybody know. An error of the commit is
// everybody's.
func (g *batcher) commitBatch(batch []*queuedWrite) {
	ctx := context.Background()
	moved, err := g.transact(ctx, batch)
	if err == nil {
		g.s.notify(ctx, moved)
	}
	for _, j := range batch {
		if err != nil {
			j.err = err
		}
		close(j.done)
	}
}

func (g *batcher) transact(ctx context.Context, batch []*queuedWrite) (moved int64, _ error) {
	if _, err := g.on.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	for i, j := range batch {
		rev, err := g.runOne(j, i > 0)
		if err != nil {
			g.rollback(ctx)
			return 0, err
		}
		moved = max(moved, rev)
	}
	if _, err := g.on.ExecContext(ctx, `COMMIT`); err != nil {
		g.rollback(ctx)
		return 0, fmt.Errorf("commit: %w", err)
	}
	return moved, nil
}

// rollback ends the transaction if a failure has not ended it already.
func (g *batcher) rollback(ctx context.Context) {
	_, _ = g.on.ExecContext(ctx, `ROLLBACK`)
}

// one runs a job. The error it returns concerns the whole batch; the job's own
// stays in the job. Under a savepoint SQLite copies every page before it is
// changed, so the first of a batch, which has nobody's work to lose, has none:
// one that fails is undone with the transaction, and the next begins another.
func (g *batcher) runOne(j *queuedWrite, saved bool) (moved int64, _ error) {
	if saved {
		if _, err := g.on.ExecContext(j.ctx, `SAVEPOINT job`); err != nil {
			return 0, fmt.Errorf("savepoint: %w", err)
		}
	}
	t := &Tx{DB: g.s, on: g.on}
	if j.err = g.runRecovering(j, t); j.err != nil {
		t.revision = 0
		if g.s.Engine.failure(j.err) == outage { // SQLite may have ended the transaction
			return 0, j.err
		}
		if err := g.undo(j.ctx, saved); err != nil {
			return 0, fmt.Errorf("undo: %w", err)
		}
	}
	if !saved {
		return t.revision, nil
	}
	if _, err := g.on.ExecContext(j.ctx, `RELEASE job`); err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	return t.revision, nil
}

func (g *batcher) undo(ctx context.Context, saved bool) error {
	if saved {
		_, err := g.on.ExecContext(ctx, `ROLLBACK TO job`)
		return err
	}
	if _, err := g.on.ExecContext(ctx, `ROLLBACK`); err != nil {
		return err
	}
	_, err := g.on.ExecContext(ctx, `BEGIN IMMEDIATE`)
	return err
}

// guard runs a job's function and turns its panic into an error, so that one
// write's bug does not end everybody's writer.
func (g *batcher) runRecovering(j *queuedWrite, t *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v", p)
		}
	}()
	if err := j.f(t); err != nil {
		return err
	}
	return t.finish(j.ctx)
}

// A writer is SQLite's one connection that writes. It takes no notice of a
// caller that goes away: SQLite would end the transaction with the statement it
// interrupts, and that is shared.
type writer struct {
	conn     *sql.Conn
	prepared statements
}

// ExecContext runs a statement.
func (w *writer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// QueryContext runs a query.
func (w *writer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// QueryRowContext runs a one-row query. A statement that cannot be prepared
// fails at Scan, as database/sql has it.
func (w *writer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return w.conn.QueryRowContext(ctx, query, args...)
	}
	return st.QueryRowContext(ctx, args...)
}

// values is a VALUES list of parameters.
func (e Engine) Values(rows, columns int) string {
	var b strings.Builder
	b.WriteString(" VALUES ")
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		for j := range columns {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(e.Param(i*columns + j + 1))
		}
		b.WriteByte(')')
	}
	return b.String()
}

// insert runs an INSERT of many rows, in statements of a few sizes: those are
// prepared once.
func (t *Tx) InsertRows(ctx context.Context, head string, rows [][]any, tail string) error {
	for _, size := range []int{128, 16, 1} {
		for len(rows) >= size {
			args := make([]any, 0, size*len(rows[0]))
			for _, row := range rows[:size] {
				args = append(args, row...)
			}
			if err := t.Later(ctx, head+t.DB.Engine.Values(size, len(rows[0]))+tail, args...); err != nil {
				return err
			}
			rows = rows[size:]
		}
	}
	return nil
}
