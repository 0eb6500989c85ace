package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A Statement is the text of a statement that changes rows, with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Rows are the result of a query.
type Rows interface {
	Scan(...any) error
	Next() bool
	Err() error
	Close() error
}

// WrapError adds the beginning of a statement to its error, so that a log shows which
// statement failed. The text has placeholders instead of values.
func WrapError(verb, query string, err error) error {
	if err == nil {
		return nil
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return err
	}
	const maxText = 40
	return fmt.Errorf("%s %q: %w", verb, beginning(query, maxText), err)
}

// beginning returns at most size bytes of a statement, on one line.
func beginning(query string, size int) string {
	text := strings.Join(strings.Fields(query), " ")
	return text[:min(len(text), size)]
}

// A preparedStmt is a statement that stays prepared until the database is closed.
type preparedStmt struct{ *sql.Stmt }

// A statementCache holds the prepared statements of a connection, or of a pool. They
// stay prepared until the database is closed. There are few different texts, because
// every value that a caller chooses freely is a parameter.
type statementCache struct {
	on interface {
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}
	mu     sync.RWMutex
	byText map[string]preparedStmt
}

// cached returns the prepared statement for a query, and whether there is one.
func (s *statementCache) cached(query string) (preparedStmt, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st, ok := s.byText[query]
	return st, ok
}

// get returns the prepared statement for a query, and prepares it if necessary. The
// caller must not hold a connection of the pool, because preparing needs one.
func (s *statementCache) get(ctx context.Context, query string) (preparedStmt, error) {
	if st, ok := s.cached(query); ok {
		return st, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.byText[query]; ok {
		return st, nil
	}
	st, err := s.on.PrepareContext(ctx, query)
	if err != nil {
		return preparedStmt{}, fmt.Errorf("prepare: %w", err)
	}
	if s.byText == nil {
		s.byText = map[string]preparedStmt{}
	}
	s.byText[query] = preparedStmt{st}
	return s.byText[query], nil
}

// close closes the statements. Closing a sql.Conn does not close them. While a
// statement is open, SQLite keeps the file open and does not merge its log.
func (s *statementCache) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.byText {
		errs = append(errs, st.Close())
	}
	clear(s.byText)
	return errors.Join(errs...)
}
