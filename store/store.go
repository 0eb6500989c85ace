// Package store keeps resources in SQL. The same statements run on SQLite and
// PostgreSQL; sqlite.go and postgres.go hold all that differs.
//
// Every exported method is one transaction, and every write appends its event
// to the outbox inside it. A write has returned only when it is on disk. Errors
// a caller can act on are faults, outages among them; the rest are bugs.
package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Store is a database. It is safe for concurrent use.
type DB struct {
	Now func() time.Time
	Log *slog.Logger // of what an operator should know

	Engine Engine
	read   *sql.DB
	commit committer
	close  []func() error
	stmts  statements // on read; SQLite only: pgx keeps its own

	replica *replica // PostgreSQL only

	mu            sync.Mutex
	onGrantChange []func(context.Context, int64)
	onRevision    []func()
}

// An engine is what differs between the databases.
type Engine struct {
	Postgres bool                // can another process write to it?
	Lock     string              // ends a SELECT FROM … AS t whose row is about to change
	LockKey  string              // ends a SELECT whose row is about to go
	Hold     string              // ends a SELECT whose row must not go before we commit
	schema   func(string) string // a migration in the engine's words
	failure  func(error) failure
	Each     func(q *Query, values any) string // a table s (i, v) of the values
	Param    func(n int) string                // the n-th parameter, of all in their order
	Clock    string                            // the time of the database, in milliseconds
}

// A failure is what a driver's error means to the store.
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
	s := &DB{Now: time.Now, Log: slog.Default()}
	open := s.openSQLite
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		open = s.openPostgres
	}
	if err := open(ctx, url); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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

// Shared tells whether other processes may write to the database.
func (s *DB) Replicated() bool { return s.Engine.Postgres }

// current reports whether the caches of this process agree with the database.
func (s *DB) Current() bool { return !s.Engine.Postgres || s.replica.lease.Valid(time.Now()) }

// Ping reports whether the database answers.
func (s *DB) Ping(ctx context.Context) error {
	var one int
	return s.Row(ctx, `SELECT 1`, nil, &one)
}

type Scanner interface{ Scan(...any) error }

// row runs a one-row query. It returns sql.ErrNoRows if there is none.
func (s *DB) Row(ctx context.Context, query string, args []any, dest ...any) error {
	if s.Engine.Postgres {
		return s.outcome(s.read.QueryRowContext(ctx, query, args...).Scan(dest...))
	}
	st, err := s.stmts.get(ctx, query)
	if err != nil {
		return s.outcome(err)
	}
	return s.outcome(st.QueryRowContext(ctx, args...).Scan(dest...))
}

// rows runs a query and calls f for each row, until f says it has enough.
func (s *DB) Rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	rows, err := s.query(ctx, query, args)
	return s.scan(rows, err, f)
}

func (s *DB) scan(rows *sql.Rows, err error, f func(Scanner) (enough bool, err error)) error {
	if err != nil {
		return s.outcome(err)
	}
	defer rows.Close()
	for rows.Next() {
		if enough, err := f(rows); err != nil || enough {
			return err
		}
	}
	return s.outcome(rows.Err())
}

// A reader runs a query and calls f for each row, until f says it has enough.
type Reader func(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error

// steady lets f read one state of the database with several statements: a row
// the first has seen is still there for the last.
func (s *DB) Snapshot(ctx context.Context, f func(Reader) error) error {
	on, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return s.outcome(err)
	}
	defer on.Rollback()
	return f(func(ctx context.Context, query string, args []any, f func(Scanner) (bool, error)) error {
		if s.Engine.Postgres {
			rows, err := on.QueryContext(ctx, query, args...)
			return s.scan(rows, err, f)
		}
		st, err := s.stmts.get(ctx, query)
		if err != nil {
			return s.outcome(err)
		}
		rows, err := preparedStatement{on.StmtContext(ctx, st.Stmt)}.QueryContext(ctx, args...) // closed with the transaction
		return s.scan(rows, err, f)
	})
}

func (s *DB) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if s.Engine.Postgres {
		return s.read.QueryContext(ctx, query, args...)
	}
	st, err := s.stmts.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// outcome turns a driver's error into a fault where a caller can act on it.
func (s *DB) outcome(err error) error {
	var f *fault.Error
	if err == nil || errors.Is(err, sql.ErrNoRows) || errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	if why := s.Engine.failure(err); why == outage || why == conflict {
		s.dropDead(err)
		return fault.Outage("the database", err)
	}
	return err
}

// missing turns the absence of a row into a fault.
func Missing(err error, kind string, uid resource.UID) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kind, string(uid))
	}
	return err
}

func MS(t time.Time) int64     { return t.UnixMilli() }
func FromMS(n int64) time.Time { return time.UnixMilli(n).UTC() }

// TimeAfter returns the time of a change to something that was changed last at
// another time. It is later, even if the clock is not, so that the time tells one
// version from the next.
func (s *DB) TimeAfter(last time.Time) time.Time {
	if now := s.Time(); now.After(last) {
		return now
	}
	return last.Add(time.Millisecond)
}

// Time returns the time of a change, as precise as it is stored.
func (s *DB) Time() time.Time { return s.Now().UTC().Truncate(time.Millisecond) }
