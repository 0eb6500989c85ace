package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A committer runs f in a transaction. It returns nil when the effects of f are on
// disk, and f's error, or that of the commit, when they are undone.
type committer interface {
	run(ctx context.Context, f func(*Tx) error) error
}

// A Tx is a transaction in progress.
type Tx struct {
	DB         *DB
	on         conn
	Shard      int         // of the counters: no two writers should share one
	queued     []Statement // to be sent with the commit
	increments []increment // of counters; on PostgreSQL they are written with the commit
	events     [][]any     // to be written with the commit
	changes    []GrantChange
	revision   int64           // of its changes to grants, once written; 0 if there are none
	traced     context.Context // of the span that those of statements are below
}

// A Statement changes rows.
type Statement struct {
	Text string
	Args []any
}

// A conn runs statements.
type conn interface {
	exec(ctx context.Context, query string, args []any) (touched int64, _ error)
	query(ctx context.Context, query string, args []any) (rows, error)
}

// Write runs f in a transaction, again if the database asks for it. If the
// revision has moved, it returns when all replicas know.
func (s *DB) Write(ctx context.Context, f func(*Tx) error) error {
	if r := simulationIn(ctx); r != nil {
		return s.outcome(r.write(ctx, f))
	}
	const tries = 8
	ctx, span := trace.Start(ctx, "transaction")
	var err error
	defer func() { span.End(err) }()
	for range tries {
		if err = s.commit.run(ctx, f); s.Engine.failure(err) != conflict {
			break
		}
	}
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return s.outcome(err)
}

// errDryRun undoes a write that was only validated.
var errDryRun = errors.New("dry run")

// finish checks that budgets are kept and writes what every transaction ends with. For a request with
// validate_only it returns errDryRun instead: every check has been made by
// then, by the database too. The row of the revision is locked late, because
// changes to grants of all groups wait for it.
func (t *Tx) finish(ctx context.Context) error {
	if err := t.keepBudgets(ctx); err != nil {
		return err
	}
	if resource.IsDryRun(ctx) {
		return errDryRun
	}
	if err := t.writeRevision(ctx); err != nil {
		return err
	}
	if t.DB.Engine.Postgres && t.revision > 0 {
		return t.Later(ctx, `SELECT pg_notify('holdfast_grants', '')`)
	}
	return nil
}

// Exec runs a statement and returns how many rows it touched.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	span := t.DB.span(t.traced, query)
	n, err := t.on.exec(ctx, query, args)
	return n, wrap("exec", query, endSpan(span, err))
}

// ExecAll runs statements that do not depend on each other's results, and returns how many rows each touched. PostgreSQL
// gets them in one round trip.
func (t *Tx) ExecAll(ctx context.Context, all []Statement) ([]int64, error) {
	if on, ok := t.on.(*postgresTx); ok {
		span := t.DB.span(t.traced, all[0].Text)
		n, err := on.execAll(ctx, all)
		return n, endSpan(span, err)
	}
	touched := make([]int64, len(all))
	for i, d := range all {
		var err error
		if touched[i], err = t.Exec(ctx, d.Text, d.Args...); err != nil {
			return nil, err
		}
	}
	return touched, nil
}

// Later runs a statement whose result the transaction does not need. PostgreSQL
// gets all of them with the commit, because there a round trip costs more than a
// statement, and because the locks of counters should be held as briefly as
// possible.
func (t *Tx) Later(ctx context.Context, query string, args ...any) error {
	if t.DB.Engine.Postgres {
		t.queued = append(t.queued, Statement{query, args})
		return nil
	}
	_, err := t.Exec(ctx, query, args...)
	return err
}

// Row runs a query and scans its only row. It returns sql.ErrNoRows if there is
// none.
func (t *Tx) Row(ctx context.Context, query string, args []any, dest ...any) error {
	return t.QueryRow(ctx, query, args...).Scan(dest...)
}

// Do runs functions of other packages in the transaction, until one fails.
func (t *Tx) Do(all ...func(*Tx) error) error {
	for _, f := range all {
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// QueryRow runs a query whose only row the caller scans.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) Row {
	span := t.DB.span(t.traced, query)
	all, err := t.on.query(ctx, query, args)
	return Row{query: query, rows: all, err: err, span: span}
}

// Rows runs a query and calls f for each row, until f says that it has enough.
func (t *Tx) Rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	span := t.DB.span(t.traced, query)
	all, err := t.on.query(ctx, query, args)
	return endSpan(span, scan(query, all, err, f))
}

// maxBatch is how many writes share one commit at most. It bounds how long the
// first of them waits for the last.
const maxBatch = 64

// A batcher is the committer of SQLite, which has one writer. Writes that arrive
// during a commit share the next one. Each but the first has a savepoint of its
// own, so that one that fails is undone alone.
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

	waiting, committing *trace.Span
}

func newBatcher(s *DB, on *sql.Conn) *batcher {
	g := &batcher{
		s: s, on: &writer{statements{on: on}},
		queue: make(chan *queuedWrite, maxBatch), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go g.loop()
	return g
}

var errClosed = errors.New("the store is closed")

// run queues f. A write that is queued runs to its end even if ctx is done, because
// it shares its transaction with others.
func (g *batcher) run(ctx context.Context, f func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &queuedWrite{ctx: context.WithoutCancel(ctx), f: f, done: make(chan struct{})}
	j.waiting = trace.Leaf(ctx, "wait for the writer")
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

// stop ends the loop after the commit in progress.
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

// fill returns a batch of first and the writes that are already waiting.
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

// commitBatch commits a batch and wakes those who wait for it. An error of the
// commit is the error of every write.
func (g *batcher) commitBatch(batch []*queuedWrite) {
	ctx := context.Background()
	revision, err := g.transact(ctx, batch)
	if err == nil {
		g.s.notify(ctx, revision)
	}
	for _, j := range batch {
		j.committing.End(err)
		if err != nil {
			j.err = err
		}
		close(j.done)
	}
}

func (g *batcher) transact(ctx context.Context, batch []*queuedWrite) (revision int64, _ error) {
	if _, err := g.on.exec(ctx, `BEGIN IMMEDIATE`, nil); err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	for i, j := range batch {
		rev, err := g.runOne(j, i > 0)
		if err != nil {
			g.rollback(ctx)
			return 0, err
		}
		revision = max(revision, rev)
	}
	if _, err := g.on.exec(ctx, `COMMIT`, nil); err != nil {
		g.rollback(ctx)
		return 0, fmt.Errorf("commit: %w", err)
	}
	return revision, nil
}

// rollback ends the transaction if a failure has not ended it already.
func (g *batcher) rollback(ctx context.Context) {
	_, _ = g.on.exec(ctx, `ROLLBACK`, nil)
}

// runOne runs a write. The error it returns is one of the whole batch; that of the
// write is in j.err. The first of a batch has no savepoint, because under one
// SQLite copies every page before it is changed: if it fails, the transaction is
// rolled back, in which there is nothing else, and another one begins.
func (g *batcher) runOne(j *queuedWrite, saved bool) (revision int64, _ error) {
	if saved {
		if _, err := g.on.exec(j.ctx, `SAVEPOINT job`, nil); err != nil {
			return 0, fmt.Errorf("savepoint: %w", err)
		}
	}
	j.waiting.End(nil)
	defer func() { j.committing = g.s.span(j.ctx, `COMMIT`) }()
	t := &Tx{DB: g.s, on: g.on, traced: j.ctx}
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
	if _, err := g.on.exec(j.ctx, `RELEASE job`, nil); err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	return t.revision, nil
}

func (g *batcher) undo(ctx context.Context, saved bool) error {
	if saved {
		_, err := g.on.exec(ctx, `ROLLBACK TO job`, nil)
		return err
	}
	if _, err := g.on.exec(ctx, `ROLLBACK`, nil); err != nil {
		return err
	}
	_, err := g.on.exec(ctx, `BEGIN IMMEDIATE`, nil)
	return err
}

// runRecovering runs the function of a write and turns a panic into an error, so
// that a bug in one write does not end the writer.
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

// A writer is the one connection of SQLite that writes. It ignores the end of a
// context: SQLite would roll back the transaction of the statement that it
// interrupts, and writes share it.
type writer struct{ prepared statements }

func (w *writer) exec(ctx context.Context, query string, args []any) (int64, error) {
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

func (w *writer) query(ctx context.Context, query string, args []any) (rows, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := w.prepared.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// Values returns a VALUES list of parameters.
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

// InsertRows runs an INSERT of many rows: head is the statement up to VALUES, and
// tail what follows the values. The statements have a few sizes, so that they are
// prepared once.
func (t *Tx) InsertRows(ctx context.Context, head string, rows [][]any, tail string) error {
	for _, size := range []int{128, 16, 4, 2, 1} {
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
