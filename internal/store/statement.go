package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Scanner scans the columns of a row.
type Scanner interface{ Scan(...any) error }

// A Reader runs a query and calls f for each row, until f says that it has enough.
type Reader func(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error

// rows are the result of a query.
type rows interface {
	Scanner
	Next() bool
	Err() error
	Close() error
}

// A Row is the result of a query of one row.
type Row struct {
	query string
	rows  rows
	err   error // why there are none
	db    *DB   // nil inside a transaction
	span  *trace.Span

	simulation *Simulation // that it is read in, or nil
}

// Scan scans the columns. It returns sql.ErrNoRows if there is no row.
func (r Row) Scan(dest ...any) error {
	err := r.err
	if err == nil {
		err = scanOne(r.rows, dest)
	}
	err = wrap("query", r.query, endSpan(r.span, err))
	if r.db == nil {
		return err
	}
	if r.simulation != nil {
		err = r.simulation.note(err)
	}
	return r.db.outcome(err)
}

// scanOne scans the first row, as sql.Row does.
func scanOne(all rows, dest []any) error {
	defer all.Close()
	if !all.Next() {
		return cmp.Or(all.Err(), sql.ErrNoRows)
	}
	if err := all.Scan(dest...); err != nil {
		return err
	}
	return all.Close()
}

// scan calls f for each row of a query.
func scan(query string, all rows, err error, f func(Scanner) (enough bool, err error)) error {
	if err != nil {
		return wrap("query", query, err)
	}
	defer all.Close()
	for all.Next() {
		if enough, err := f(all); err != nil || enough {
			return wrap("query", query, err)
		}
	}
	return wrap("query", query, all.Err())
}

// span starts the span of a statement. The text has parameters only, no values, and
// its beginning tells which one it is.
func (s *DB) span(ctx context.Context, query string) *trace.Span {
	span := trace.Leaf(ctx, "statement")
	if span == nil {
		return nil
	}
	const most = 200
	text := beginning(query, most)
	verb, _, _ := strings.Cut(text, " ")
	span.Name(verb)
	span.Set("db.query.text", text)
	span.Set("db.system.name", s.Engine.name)
	return span
}

// endSpan ends the span of a statement and returns its error. That there is no row
// is not a failure.
func endSpan(span *trace.Span, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		span.End(nil)
	} else {
		span.End(err)
	}
	return err
}

// beginning returns the beginning of a statement, on one line.
func beginning(query string, most int) string {
	text := strings.Join(strings.Fields(query), " ")
	return text[:min(len(text), most)]
}

// wrap adds the beginning of a statement to its error, so that a log tells which
// statement failed. The text has parameters only, no values.
func wrap(verb, query string, err error) error {
	if err == nil {
		return nil
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return err
	}
	const most = 40
	return fmt.Errorf("%s %q: %w", verb, beginning(query, most), err)
}

// ReadAll reads the rows of a query.
func ReadAll[T any](
	ctx context.Context, read Reader, row func(Scanner) (T, error), query string, args ...any,
) (all []T, _ error) {
	err := read(ctx, query, args, func(s Scanner) (bool, error) {
		v, err := row(s)
		all = append(all, v)
		return false, err
	})
	return all, err
}

// ReadColumn reads the rows of a query of one column.
func ReadColumn[T any](ctx context.Context, read Reader, query string, args ...any) ([]T, error) {
	return ReadAll(ctx, read, func(row Scanner) (v T, err error) {
		err = row.Scan(&v)
		return v, err
	}, query, args...)
}

// ReadMap reads the rows of a query of two columns, a key and its value.
func ReadMap[K comparable, V any](ctx context.Context, read Reader, query string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := read(ctx, query, args, func(row Scanner) (bool, error) {
		var k K
		var v V
		err := row.Scan(&k, &v)
		all[k] = v
		return false, err
	})
	return all, err
}

// A prepared is a statement that is prepared once and stays so until the database is closed.
type prepared struct{ *sql.Stmt }

// statements are the prepared statements of a connection, or of a pool of them.
// They stay prepared until the database is closed. There are few different texts,
// because values are parameters, and so is everything else that a caller chooses
// freely.
type statements struct {
	on interface {
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}
	mu  sync.RWMutex
	all map[string]prepared
}

// cached returns a statement that is prepared already.
func (s *statements) cached(query string) (prepared, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st, ok := s.all[query]
	return st, ok
}

// get returns a statement, and prepares it if it is not. The caller holds no connection.
func (s *statements) get(ctx context.Context, query string) (prepared, error) {
	if st, ok := s.cached(query); ok {
		return st, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.all[query]; ok {
		return st, nil
	}
	made, err := s.on.PrepareContext(ctx, query)
	if err != nil {
		return prepared{}, fmt.Errorf("prepare: %w", err)
	}
	if s.all == nil {
		s.all = map[string]prepared{}
	}
	s.all[query] = prepared{made}
	return s.all[query], nil
}

// close closes the statements. Those of a sql.Conn are not closed with it, and as
// long as one is left, SQLite keeps a file open and its log unmerged.
func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.all {
		errs = append(errs, st.Close())
	}
	clear(s.all)
	return errors.Join(errs...)
}
