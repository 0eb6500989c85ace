package store

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Scanner scans the columns of a row.
type Scanner interface{ Scan(...any) error }

// A Reader runs a query and calls f for each row, until f returns true.
type Reader func(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error

// A Row is the result of a query that returns one row.
type Row struct {
	query string
	rows  engine.Rows
	err   error // error of the query, if it returned no rows
	db    *DB   // nil inside a transaction
	span  *trace.Span

	carried *carriedTx // the carried transaction that the query runs in, or nil
}

// Scan scans the columns. It returns sql.ErrNoRows if there is no row.
func (r Row) Scan(dest ...any) error {
	err := r.err
	if err == nil {
		err = scanOne(r.rows, dest)
	}
	err = engine.WrapError("query", r.query, engine.EndSpan(r.span, err))
	if r.db == nil {
		return err
	}
	if r.carried != nil {
		err = r.carried.note(err)
	}
	return r.db.outcome(err)
}

// scanOne scans the first row, like sql.Row.
func scanOne(rows engine.Rows, dest []any) error {
	defer rows.Close()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// scan calls f for each row of a query, until f returns true. If err, the error of
// the query, is not nil, it returns err.
func scan(query string, rows engine.Rows, err error, f func(Scanner) (enough bool, err error)) error {
	if err != nil {
		return engine.WrapError("query", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if enough, err := f(rows); err != nil || enough {
			return engine.WrapError("query", query, err)
		}
	}
	return engine.WrapError("query", query, rows.Err())
}

// ReadAll returns the rows of a query. It calls row to read each of them.
func ReadAll[T any](
	ctx context.Context, read Reader, row func(Scanner) (T, error), query string, args ...any,
) (values []T, _ error) {
	err := read(ctx, query, args, func(s Scanner) (bool, error) {
		v, err := row(s)
		values = append(values, v)
		return false, err
	})
	return values, err
}

// ReadColumn returns the values in the only column of a query's result.
func ReadColumn[T any](ctx context.Context, read Reader, query string, args ...any) ([]T, error) {
	return ReadAll(ctx, read, func(row Scanner) (v T, err error) {
		err = row.Scan(&v)
		return v, err
	}, query, args...)
}

// ReadMap returns the result of a query with two columns, which are a key and its value.
func ReadMap[K comparable, V any](ctx context.Context, read Reader, query string, args ...any) (map[K]V, error) {
	values := map[K]V{}
	err := read(ctx, query, args, func(row Scanner) (bool, error) {
		var k K
		var v V
		err := row.Scan(&k, &v)
		values[k] = v
		return false, err
	})
	return values, err
}
