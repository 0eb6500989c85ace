// Package store stores resources in SQL. The same statements run on SQLite and
// PostgreSQL; package engine holds the differences. A few functions check
// Engine.Postgres if one engine needs another statement or fewer round trips.
//
// A method of DB that writes is one transaction, and so is a method of a Store in the
// packages above. It returns when the transaction is on disk. A method of Tx, and a
// function that has a Tx parameter, runs in the transaction of its caller. A change to
// a resource and its event in the outbox are in the same transaction. Errors that a
// caller can act on are faults, including outages; all other errors are bugs.
package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/allowance"
	"github.com/holdfast-dev/holdfast/internal/store/bell"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// keepNames is the default of DB.KeepNames.
const keepNames = 90 * 24 * time.Hour

// A DB is a database. It is safe for concurrent use.
type DB struct {
	Now func() time.Time
	Log *slog.Logger // for the operator

	BeforeWrite func(context.Context) // called before each write that relies on an access; may be nil; for tests

	// KeepNames is the time for which the name of a renamed or deleted organization is
	// reserved. Negative disables reservations. It must be set before the DB is used.
	KeepNames time.Duration

	Engine engine.Engine
	db     *engine.Database

	replica *replica.Replica // nil on SQLite
	steady  steadyClock

	mu            sync.Mutex
	onGrantChange []func(context.Context, int64)
	settled       atomic.Int64 // newest revision that all replicas are known to have applied
	onRevision    []func()
	bells         [queues]bell.Bell

	BudgetHooks BudgetHooks // must be set before the DB is used
	budgets     budgetCache

	// DefaultLimits are the limits of an organization whose budget has no other limit of the
	// metric. Organizations that another one pays for share its limits. Only metrics in
	// Counters can have a default. It must be set before the DB is used.
	DefaultLimits map[resource.Metric]int64
	allowances    allowance.Table[counterKey]
}

// Open connects to url, a postgres:// address or the path of an SQLite file, and
// migrates the schema to the newest version.
func Open(ctx context.Context, url string) (*DB, error) { return OpenSchema(ctx, url, 0) }

// OpenSchema is Open, but it migrates only up to the migration numbered last; 0 means all.
func OpenSchema(ctx context.Context, url string, last int64) (*DB, error) {
	s := newDB()
	var err error
	if IsPostgres(url) {
		err = s.openPostgres(ctx, url, last)
	} else {
		s.Engine = engine.SQLite
		s.db, err = engine.OpenSQLite(ctx, url, last, s.notify)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *DB) openPostgres(ctx context.Context, address string, last int64) error {
	s.Engine = engine.Postgres
	cfg, err := engine.PostgresConfig(address)
	if err != nil {
		return err
	}
	knows, err := schema.Last()
	if err != nil {
		return err
	}
	s.replica = replica.New(cfg, replica.Hooks{
		Knows: knows,
		ReadHeartbeats: func(ctx context.Context, query string, args ...any) (map[string]int64, error) {
			return ReadMap[string, int64](ctx, s.Rows, query, args...)
		},
		Fault:       s.outcome,
		ClearCaches: s.clearCaches,
		HistoryChanged: func() {
			s.dropIdle()
			s.clearCaches()
			s.budgets.forget()
		},
		Log: func() *slog.Logger { return s.Log },
	})
	if s.db, err = engine.OpenPostgres(ctx, s.replica.Connector(), last); err != nil {
		return err
	}
	return s.replica.Start(ctx)
}

// OpenToRead connects to the database at url for reads, such as a back-up. It neither
// changes the schema nor locks the file of SQLite, so a server can run at the same
// time.
func OpenToRead(ctx context.Context, url string) (*DB, error) {
	s := newDB()
	open := engine.ReadSQLite
	if IsPostgres(url) {
		open = engine.ReadPostgres
	}
	var err error
	if s.db, err = open(url); err != nil {
		return nil, err
	}
	s.Engine = s.db.Engine
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newDB() *DB {
	s := &DB{Now: time.Now, Log: slog.Default(), KeepNames: keepNames}
	s.OnRevision(s.budgets.clear)
	return s
}

// IsPostgres reports whether url is the address of a PostgreSQL database.
func IsPostgres(url string) bool { return engine.IsPostgres(url) }

// KnownSchema returns the number of the newest migration in this program.
func KnownSchema() (int64, error) { return schema.Last() }

// Close waits until the running commit has ended, and closes the database.
func (s *DB) Close() error {
	var errs []error
	if s.replica != nil {
		errs = append(errs, s.replica.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// Replicated reports whether other processes may write to the database.
func (s *DB) Replicated() bool { return s.Engine.Postgres }

// Current reports whether the caches of this process agree with the database.
func (s *DB) Current() bool { return !s.Engine.Postgres || s.replica.Valid(time.Now()) }

// Ping returns an error unless the database answers.
func (s *DB) Ping(ctx context.Context) error {
	var one int
	return s.Row(ctx, `SELECT 1`, nil, &one)
}

// PoolStats returns the state of the connection pool. On SQLite, that pool is only for
// reads.
func (s *DB) PoolStats() sql.DBStats { return s.db.Pool.Stats() }

// Row runs a query and scans its only row. It returns sql.ErrNoRows if there is none.
func (s *DB) Row(ctx context.Context, query string, args []any, dest ...any) error {
	return s.QueryRow(ctx, query, args...).Scan(dest...)
}

// QueryRow runs a query and returns its only row, which the caller scans.
func (s *DB) QueryRow(ctx context.Context, query string, args ...any) Row {
	if c := carriedIn(ctx); c != nil {
		row := c.tx.QueryRow(ctx, query, args...)
		row.db, row.carried = s, c
		return row
	}
	span := s.Engine.Span(ctx, query)
	rows, err := s.db.Query(ctx, query, args)
	return Row{query: query, rows: rows, err: err, db: s, span: span}
}

// Rows runs a query and calls f for each row, until f returns true.
func (s *DB) Rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	if c := carriedIn(ctx); c != nil {
		return s.outcome(c.rows(ctx, query, args, f))
	}
	span := s.Engine.Span(ctx, query)
	rows, err := s.db.Query(ctx, query, args)
	return s.outcome(engine.EndSpan(span, scan(query, rows, err, f)))
}

// Exec runs one statement in its own transaction, and returns how many rows it changed.
func (s *DB) Exec(ctx context.Context, query string, args ...any) (n int64, _ error) {
	err := s.Write(ctx, func(t *Tx) (err error) {
		n, err = t.Exec(ctx, query, args...)
		return err
	})
	return n, err
}

// ExecRow runs one statement in its own transaction, and scans the only row that it
// returns. It returns sql.ErrNoRows if there is none.
func (s *DB) ExecRow(ctx context.Context, query string, args []any, dest ...any) error {
	// a single statement is a transaction by itself, which saves round trips
	if s.Engine.Postgres && !resource.IsDryRun(ctx) {
		return s.Row(ctx, query, args, dest...)
	}
	return s.Write(ctx, func(t *Tx) error { return t.Row(ctx, query, args, dest...) })
}

// Snapshot calls f with a Reader that sees one state of the database: if its first
// statement has read a row, then its last statement finds the row too.
func (s *DB) Snapshot(ctx context.Context, f func(Reader) error) error {
	if InTransaction(ctx) {
		return f(s.Rows)
	}
	snapshot, err := s.db.Snapshot(ctx)
	if err != nil {
		return s.outcome(err)
	}
	defer snapshot.End(ctx)
	return f(func(ctx context.Context, query string, args []any, f func(Scanner) (bool, error)) (err error) {
		span := s.Engine.Span(ctx, query)
		defer func() { _ = engine.EndSpan(span, err) }()
		rows, err := snapshot.Query(ctx, query, args)
		return s.outcome(scan(query, rows, err, f))
	})
}

// outcome turns a driver's error into a fault if a caller can act on it. If a
// connection was lost, it also closes the idle connections.
func (s *DB) outcome(err error) error {
	result := s.Engine.Fault(err)
	isOutage := errors.Is(result, fault.Unavailable) && !errors.Is(err, fault.Unavailable)
	if isOutage && s.db != nil && s.db.ConnectionLost(err) {
		s.dropIdle()
	}
	return result
}

// dropIdle closes the idle connections.
func (s *DB) dropIdle() {
	s.db.DropIdle()
	if s.replica != nil {
		s.replica.DropIdle()
	}
}

// Missing returns fault.NotFound if err is sql.ErrNoRows, and err otherwise.
func Missing(err error, kind string, uid resource.UID) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kind, string(uid))
	}
	return err
}

// MS returns the stored form of a time, in milliseconds.
func MS(t time.Time) int64 { return t.UnixMilli() }

// FromMS returns the time that is stored as n milliseconds.
func FromMS(n int64) time.Time { return time.UnixMilli(n).UTC() }

// TimeAfter returns the time for a change to a resource that was last changed at
// last. The result is later than last even if the clock is not, so that the times of
// two versions always differ.
func (s *DB) TimeAfter(last time.Time) time.Time {
	if current := s.Time(); current.After(last) {
		return current
	}
	return last.Add(time.Millisecond)
}

// Time returns the current time, rounded to the precision of the database.
func (s *DB) Time() time.Time { return s.Now().UTC().Truncate(time.Millisecond) }
