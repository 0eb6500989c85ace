// Package engine opens SQLite and PostgreSQL databases and runs statements and
// transactions on them. An Engine holds the parts of statements that differ between
// the two; sqlite.go and postgres.go open the databases. Callers use Engine.Failure
// and Engine.Fault to learn what a driver's error means.
package engine

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// An Engine holds the differences between the statements for the two databases.
type Engine struct {
	name      string // name of the database system in OpenTelemetry
	Postgres  bool   // whether other processes can write to the database
	ForUpdate string // ends a SELECT FROM … AS t whose row will be updated
	ForDelete string // ends a SELECT whose row will be deleted
	ForShare  string // ends a SELECT whose row must not be deleted before the commit
	ForHold   string // ends a SELECT whose row must not be changed or deleted before the commit
	failure   func(error) Failure

	// Unnest returns a table (i, v) with the index and the value of each element of
	// values, which is a []string, []resource.UID or []int64.
	Unnest func(q Args, values any) string

	// Lookup returns a join with a table, named t, and a condition on t and the tables
	// before it. The join uses an index for each row on the left, even if the planner
	// believes that the table has few rows.
	Lookup func(table, condition string) string

	Param func(n int) string // the n-th parameter in a statement that uses all parameters in order
	Clock string             // expression for the current time of the database, in milliseconds
}

// Args collects the arguments of a statement.
type Args interface {
	Arg(v any) (param string) // adds an argument and returns its placeholder
}

// A Failure is the meaning of a driver's error.
type Failure int

// These are the failures.
const (
	Bug       Failure = iota // any other error
	Duplicate                // a unique index refused the statement
	Dangling                 // a foreign key refused the statement
	Conflict                 // the transaction should be retried
	Outage                   // the database is not available at the moment
)

// Failure returns the meaning of a driver's error.
func (e Engine) Failure(err error) Failure { return e.failure(err) }

// Fault turns a driver's error into a fault if a caller can act on it.
func (e Engine) Fault(err error) error {
	if err == nil {
		return nil
	}
	if f := (*fault.Error)(nil); errors.Is(err, sql.ErrNoRows) || errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	if e.Unavailable(err) {
		return fault.Outage("the database", err)
	}
	return err
}

// Unavailable reports whether err means that the database could not run a statement at the moment.
func (e Engine) Unavailable(err error) bool {
	why := e.failure(err)
	return why == Outage || why == Conflict
}

// Values returns a VALUES list of placeholders.
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

// Span starts the span for a statement. It contains the beginning of the
// statement's text, which has placeholders instead of values.
func (e Engine) Span(ctx context.Context, query string) *trace.Span {
	span := trace.Leaf(ctx, "statement")
	if span == nil {
		return nil
	}
	const maxText = 200
	text := beginning(query, maxText)
	verb, _, _ := strings.Cut(text, " ")
	span.Name(verb)
	span.Set("db.query.text", text)
	span.Set("db.system.name", e.name)
	return span
}

// EndSpan ends the span for a statement and returns the statement's error.
// sql.ErrNoRows does not mark the span as failed.
func EndSpan(span *trace.Span, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		span.End(nil)
	} else {
		span.End(err)
	}
	return err
}
