package store

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/store/access"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Tx is a running transaction.
type Tx struct {
	DB         *DB
	on         engine.Conn
	Shard      int                // shard of the counters; concurrent writers should use different shards
	queued     []engine.Statement // statements that are sent with the commit
	increments []increment        // additions to counters; on PostgreSQL they are written with the commit
	summed     int                // number of increments after sumIncrements added them up
	events     [][]any            // rows of events that are written with the commit
	changes    []GrantChange
	listed     map[GrantChange]struct{} // the elements of changes
	revision   int64                    // revision that the transaction wrote for its changes to grants; 0 if it made none
	basis      *access.Basis            // what the access of the request depends on; nil on SQLite and without an access
	traced     context.Context          // parent of the spans for the transaction's statements
	wakes      [queues]bool             // queues whose readers the commit wakes
}

// A write is a function and the transaction in which it runs. It implements
// engine.Transaction.
type write struct {
	tx *Tx
	f  func(*Tx) error
}

// Run runs the function, and then the statements that every transaction needs at its end.
func (w *write) Run(ctx context.Context, on engine.Conn) error {
	w.tx.on, w.tx.traced = on, ctx
	if on, ok := on.(*engine.PostgresTx); ok {
		w.tx.Shard = on.Shard()
	}
	if err := w.f(w.tx); err != nil {
		return err
	}
	return w.tx.finish(ctx)
}

// Closing returns the statements that are sent to PostgreSQL together with the commit.
func (w *write) Closing() []engine.Statement { return w.tx.closing() }

// Revision returns the revision that the transaction has written, or 0.
func (w *write) Revision() int64 { return w.tx.revision }

// Write runs f in a transaction, and again if the database reports a conflict. If the
// transaction has written a new revision, Write returns when all replicas have applied
// it. If the request relies on an access, and the access ends before the commit, Write
// changes nothing and returns the error of Access.Recheck.
func (s *DB) Write(ctx context.Context, f func(*Tx) error) error {
	if c := carriedIn(ctx); c != nil {
		return s.outcome(c.write(ctx, f))
	}
	if s.BeforeWrite != nil && access.From(ctx) != nil {
		s.BeforeWrite(ctx)
	}
	ctx, span := trace.Start(ctx, "transaction")
	var err error
	defer func() { span.End(err) }()
	for again := (retries{}); again.after(ctx, s, err); {
		t := &Tx{DB: s}
		if err = s.db.Write(ctx, &write{t, f}); err == nil {
			s.wake(t)
			if s.Engine.Postgres {
				s.announce(ctx, t.revision)
			}
		}
		if access.Changed(ctx, err) {
			if err := access.From(ctx).Refresh(ctx); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, engine.ErrDryRun) {
		err = nil
	}
	if access.Changed(ctx, err) {
		err = fault.New(fault.Aborted, "Aborted: your access keeps changing; try again")
	}
	return s.outcome(err)
}

// retries counts how often a transaction has run. A transaction after which the access must be decided again may run
// more often than one with a conflict, because others can change the grants of a caller at any rate.
type retries struct{ runs int }

// after reports whether the transaction should run for the first time, or again after err.
func (r *retries) after(ctx context.Context, s *DB, err error) bool {
	const afterConflict, afterChange = 8, 32
	r.runs++
	switch {
	case r.runs == 1:
		return true
	case access.Changed(ctx, err):
		return r.runs <= afterChange
	}
	return (s.Engine.Failure(err) == engine.Conflict || errors.Is(err, errRepeat)) && r.runs <= afterConflict
}

// announce notifies this process of a new revision and waits for the other replicas.
// It is called after the transaction has released its connection, because the
// replicas may need one.
func (s *DB) announce(ctx context.Context, revision int64) {
	if revision == 0 {
		return
	}
	s.notify(context.WithoutCancel(ctx), revision)
	span := trace.Leaf(ctx, "wait for replicas")
	s.replica.WaitForPeers(ctx, revision)
	if ctx.Err() == nil {
		s.settled.Store(revision)
	}
	span.End(nil)
}

// finish checks the budgets and the access, and writes the revision. For a request with validate_only
// it returns engine.ErrDryRun instead, after all checks, including the constraints of
// the database. The row of the revision is locked late, because changes to grants of all
// groups wait for it.
func (t *Tx) finish(ctx context.Context) error {
	if err := t.keepBudgets(ctx); err != nil {
		return err
	}
	if err := t.keepAccess(ctx); err != nil {
		return err
	}
	if resource.IsDryRun(ctx) {
		return engine.ErrDryRun
	}
	if err := t.writeRevision(ctx); err != nil {
		return err
	}
	if t.DB.Engine.Postgres && t.revision > 0 {
		return t.Later(ctx, `SELECT pg_notify('holdfast_grants', '')`)
	}
	return nil
}

// closing returns the statements that end a transaction on PostgreSQL. The
// counters come late, because their locks are held until the commit. The locks of the
// access come last: see accessStatements.
func (t *Tx) closing() []engine.Statement {
	statements := slices.Clone(t.queued)
	if len(t.events) > 0 {
		statements = append(statements, outboxStatement(t.events))
	}
	if len(t.increments) > 0 {
		statements = append(statements, counterStatement(t.increments, t.Shard))
	}
	return append(statements, t.accessStatements()...)
}

// Exec runs a statement and returns how many rows it changed.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	span := t.DB.Engine.Span(t.traced, query)
	n, err := t.on.Exec(ctx, query, args)
	return n, engine.WrapError("exec", query, engine.EndSpan(span, err))
}

// ExecAll runs statements that do not depend on each other's results, and returns how
// many rows each changed. PostgreSQL gets them in one round trip.
func (t *Tx) ExecAll(ctx context.Context, statements []engine.Statement) ([]int64, error) {
	if on, ok := t.on.(*engine.PostgresTx); ok {
		span := t.DB.Engine.Span(t.traced, statements[0].Text)
		n, err := on.ExecAll(ctx, statements)
		return n, engine.EndSpan(span, err)
	}
	touched := make([]int64, len(statements))
	for i, st := range statements {
		var err error
		if touched[i], err = t.Exec(ctx, st.Text, st.Args...); err != nil {
			return nil, err
		}
	}
	return touched, nil
}

// Later runs a statement whose result the transaction does not need. On PostgreSQL
// all such statements are sent with the commit, because a round trip costs more than
// a statement, and because counters should be locked as briefly as possible.
func (t *Tx) Later(ctx context.Context, query string, args ...any) error {
	if t.DB.Engine.Postgres {
		t.queued = append(t.queued, engine.Statement{Text: query, Args: args})
		return nil
	}
	_, err := t.Exec(ctx, query, args...)
	return err
}

// Row runs a query and scans its only row. It returns sql.ErrNoRows if there is none.
func (t *Tx) Row(ctx context.Context, query string, args []any, dest ...any) error {
	return t.QueryRow(ctx, query, args...).Scan(dest...)
}

// Do calls functions that other packages provide in the transaction, until one of them fails.
func (t *Tx) Do(functions ...func(*Tx) error) error {
	for _, f := range functions {
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// QueryRow runs a query and returns its only row, which the caller scans.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) Row {
	span := t.DB.Engine.Span(t.traced, query)
	rows, err := t.on.Query(ctx, query, args)
	return Row{query: query, rows: rows, err: err, span: span}
}

// Rows runs a query and calls f for each row, until f returns true.
func (t *Tx) Rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	span := t.DB.Engine.Span(t.traced, query)
	rows, err := t.on.Query(ctx, query, args)
	return engine.EndSpan(span, scan(query, rows, err, f))
}

// InsertRows runs an INSERT with many rows: head is the statement up to VALUES, and
// tail is the part after the values. It splits the rows into statements of a few fixed
// sizes, so that each statement is prepared only once.
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

// CopyRows adds the rows that next returns to a table, until next returns io.EOF, and
// returns their number. next may reuse a row when it is called again.
func (t *Tx) CopyRows(
	ctx context.Context, table string, columns []string, next func() ([]any, error),
) (n int64, _ error) {
	if on, ok := t.on.(*engine.PostgresTx); ok {
		return on.Copy(ctx, table, columns, next)
	}
	const size = 64
	var rows [][]any
	head := `INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `)`
	for {
		row, err := next()
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if err == nil {
			n++
			rows = append(rows, slices.Clone(row))
		}
		if len(rows) == size || err != nil {
			if err := t.InsertRows(ctx, head, rows, ""); err != nil {
				return n, err
			}
			rows = rows[:0]
		}
		if err != nil {
			return n, nil
		}
	}
}
