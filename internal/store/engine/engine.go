// Package engine opens SQLite and PostgreSQL databases and runs statements and
// transactions on them. An Engine holds the parts of statements that differ; sqlite.go
// and postgres.go open the databases. Errors of the drivers leave this package with
// their meaning: see Engine.Failure and Engine.Fault.
package engine

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// An Engine holds what differs between the statements of the two databases.
type Engine struct {
	name      string // name of the system in OpenTelemetry
	Postgres  bool   // whether other processes can write to the database
	ForUpdate string // ends a SELECT FROM … AS t whose row is about to be updated
	ForDelete string // ends a SELECT whose row is about to be deleted
	ForShare  string // ends a SELECT whose row must not be deleted before the commit
	failure   func(error) Failure

	// Unnest returns a table (i, v) of the index and value of each element of values, a
	// []string, []resource.UID or []int64.
	Unnest func(q Args, values any) string

	// Lookup joins the rows of a table, named t, that satisfy a condition on the tables
	// before it. It uses an index for each row on the left, however few rows the planner
	// believes the table to have.
	Lookup func(table, condition string) string

	Param func(n int) string // the n-th parameter of a statement that uses all of them in order
	Clock string             // an expression for the time of the database, in milliseconds
}

// Args collects the arguments of a statement.
type Args interface {
	Arg(v any) (param string) // adds an argument
}

// A Failure is the meaning of a driver's error.
type Failure int

// The failures.
const (
	Bug       Failure = iota // any other error
	Duplicate                // a unique index refused the statement
	Dangling                 // a foreign key refused the statement
	Conflict                 // the transaction should be retried
	Outage                   // the database is not available
)

// Failure returns the meaning of an error.
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

// Unavailable reports whether the database could not run a statement now.
func (e Engine) Unavailable(err error) bool {
	why := e.failure(err)
	return why == Outage || why == Conflict
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

// Span starts the span of a statement. It contains the beginning of the text, which
// has parameters only, no values.
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

// EndSpan ends the span of a statement and returns the statement's error. A missing
// row is not a failure.
func EndSpan(span *trace.Span, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		span.End(nil)
	} else {
		span.End(err)
	}
	return err
}
