// Package store stores resources in SQL. The same statements run on SQLite and
// PostgreSQL. An Engine has the parts of statements that differ, and sqlite.go and
// postgres.go open the databases and commit; a few functions ask Engine.Postgres
// where one engine needs another statement or another number of round trips.
//
// A method of DB, or of a Store of a package below, that writes is one
// transaction, and returns when it is on disk; functions over a Tx run in the
// transaction of their caller. A change of a resource and its event in the outbox
// are in the same transaction. Errors that a caller can act on are faults, outages
// among them; the others are bugs.
package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A DB is a database. It is safe for concurrent use.
type DB struct {
	Now func() time.Time
	Log *slog.Logger // for what an operator should know

	Engine Engine
	read   *sql.DB
	commit committer
	close  []func() error
	stmts  statements // on read; SQLite only: pgx keeps its own
	schema int64      // the migration that it is opened with; 0 is the last

	replica *replica // PostgreSQL only
	steady  steadyClock

	mu            sync.Mutex
	onGrantChange []func(context.Context, int64)
	settled       atomic.Int64 // the revision that all replicas are known to have applied
	onRevision    []func()

	BudgetHooks BudgetHooks // set before use
	budgets     budgetCache
}

// An Engine is what differs between the statements of the two databases.
type Engine struct {
	name      string              // as OpenTelemetry has it
	Postgres  bool                // can another process write to it?
	ForUpdate string              // ends a SELECT FROM … AS t whose row is about to change
	ForDelete string              // ends a SELECT whose row is about to go
	ForShare  string              // ends a SELECT whose row must not go before we commit
	schema    func(string) string // a migration in the engine's words
	failure   func(error) failure
	Unnest    func(q *Query, values any) string // a table s (i, v) of the values

	// Lookup joins the rows of a table, named t, for which a condition on what stands before it
	// holds. They are looked up by an index for one row after the other, however few rows the
	// planner believes the table to have.
	Lookup func(table, condition string) string

	Param func(n int) string // the n-th parameter, of all in their order
	Clock string             // the time of the database, in milliseconds
}

// A failure is the meaning of a driver's error.
type failure int

const (
	broken    failure = iota // a bug
	duplicate                // a unique index refused it
	dangling                 // a foreign key refused it
	conflict                 // the transaction is worth running again
	outage                   // the database cannot do it now
)

// Open connects to url: a postgres:// address, or the path of an SQLite file,
// and brings the schema up to date.
func Open(ctx context.Context, url string) (*DB, error) {
	s := newDB()
	if err := s.open(ctx, url); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *DB) open(ctx context.Context, url string) error {
	if IsPostgres(url) {
		return s.openPostgres(ctx, url)
	}
	return s.openSQLite(ctx, url)
}

func newDB() *DB {
	s := &DB{Now: time.Now, Log: slog.Default()}
	s.OnRevision(s.budgets.clear)
	return s
}

// IsPostgres reports whether a database is one of PostgreSQL, by its address.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// Close waits for the commit under way and releases the database.
func (s *DB) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	s.close = nil
	return errors.Join(errs...)
}

// Replicated reports whether other processes may write to the database.
func (s *DB) Replicated() bool { return s.Engine.Postgres }

// Current reports whether the caches of this process agree with the database.
func (s *DB) Current() bool { return !s.Engine.Postgres || s.replica.lease.Valid(time.Now()) }

// Ping reports whether the database answers.
func (s *DB) Ping(ctx context.Context) error {
	var one int
	return s.Row(ctx, `SELECT 1`, nil, &one)
}

// Row runs a query and scans its only row. It returns sql.ErrNoRows if there is
// none.
func (s *DB) Row(ctx context.Context, query string, args []any, dest ...any) error {
	return s.QueryRow(ctx, query, args...).Scan(dest...)
}

// QueryRow runs a query whose only row the caller scans.
func (s *DB) QueryRow(ctx context.Context, query string, args ...any) Row {
	if r := simulationIn(ctx); r != nil {
		row := r.tx.QueryRow(ctx, query, args...)
		row.db, row.simulation = s, r
		return row
	}
	span := s.span(ctx, query)
	all, err := s.query(ctx, query, args)
	return Row{query: query, rows: all, err: err, db: s, span: span}
}

// Rows runs a query and calls f for each row, until f says that it has enough.
func (s *DB) Rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	if r := simulationIn(ctx); r != nil {
		return s.outcome(r.rows(ctx, query, args, f))
	}
	span := s.span(ctx, query)
	all, err := s.query(ctx, query, args)
	return s.outcome(endSpan(span, scan(query, all, err, f)))
}

// Exec runs one statement in a transaction of its own, and returns how many rows
// it touched.
func (s *DB) Exec(ctx context.Context, query string, args ...any) (n int64, _ error) {
	err := s.Write(ctx, func(t *Tx) (err error) {
		n, err = t.Exec(ctx, query, args...)
		return err
	})
	return n, err
}

// ExecRow runs one statement in a transaction of its own, and scans the only row that
// it returns. It returns sql.ErrNoRows if there is none.
func (s *DB) ExecRow(ctx context.Context, query string, args []any, dest ...any) error {
	if s.Engine.Postgres && !resource.IsDryRun(ctx) { // to which a statement is a transaction: one round trip
		return s.Row(ctx, query, args, dest...)
	}
	return s.Write(ctx, func(t *Tx) error { return t.Row(ctx, query, args, dest...) })
}

// Snapshot lets f read one state of the database with several statements: a row
// that the first has read is still there for the last.
func (s *DB) Snapshot(ctx context.Context, f func(Reader) error) error {
	if simulationIn(ctx) != nil {
		return f(s.Rows)
	}
	on, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return s.outcome(err)
	}
	var unprepared []string
	err = f(func(ctx context.Context, query string, args []any, f func(Scanner) (bool, error)) (err error) {
		span := s.span(ctx, query)
		defer func() { _ = endSpan(span, err) }()
		st, ok := s.stmts.cached(query)
		if !ok {
			unprepared = append(unprepared, query)
			rows, err := on.QueryContext(ctx, query, args...)
			return s.outcome(scan(query, rows, err, f))
		}
		rows, err := prepared{on.StmtContext(ctx, st.Stmt)}.QueryContext(ctx, args...) // closed with the transaction
		return s.outcome(scan(query, rows, err, f))
	})
	_ = on.Rollback() // nothing was written
	// To prepare a statement takes a connection. Were they prepared above, as many snapshots as there are connections
	// would wait for each other.
	if !s.Engine.Postgres {
		for _, query := range unprepared {
			_, _ = s.stmts.get(ctx, query) // it works without
		}
	}
	return err
}

func (s *DB) query(ctx context.Context, query string, args []any) (rows, error) {
	if s.Engine.Postgres {
		return s.queryPostgres(ctx, query, args)
	}
	st, err := s.stmts.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// outcome turns a driver's error into a fault where a caller can act on it.
func (s *DB) outcome(err error) error {
	if err == nil {
		return nil
	}
	if f := (*fault.Error)(nil); errors.Is(err, sql.ErrNoRows) || errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	if why := s.Engine.failure(err); why == outage || why == conflict {
		s.dropDead(err)
		return fault.Outage("the database", err)
	}
	return err
}

// Missing turns the absence of a row into fault.NotFound.
func Missing(err error, kind string, uid resource.UID) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kind, string(uid))
	}
	return err
}

// MS returns a time as columns have it, in milliseconds.
func MS(t time.Time) int64 { return t.UnixMilli() }

// FromMS returns the time that a column has.
func FromMS(n int64) time.Time { return time.UnixMilli(n).UTC() }

// TimeAfter returns the time of a change to something that was last changed at the
// time given. It is later than that even if the clock is not, so that the time
// tells one version from the next.
func (s *DB) TimeAfter(last time.Time) time.Time {
	if now := s.Time(); now.After(last) {
		return now
	}
	return last.Add(time.Millisecond)
}

// Time returns the time of a change, as precise as it is stored.
func (s *DB) Time() time.Time { return s.Now().UTC().Truncate(time.Millisecond) }
