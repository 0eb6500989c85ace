package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// A statement is prepared once and kept for as long as the store is open.
type preparedStatement struct{ *sql.Stmt }

// statements are those of a connection, or of a pool of them. Texts are few:
// values, and what else a caller chooses freely, are parameters.
type statements struct {
	on interface {
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}
	mu  sync.RWMutex
	all map[string]preparedStatement
}

func (s *statements) get(ctx context.Context, query string) (preparedStatement, error) {
	s.mu.RLock()
	st, ok := s.all[query]
	s.mu.RUnlock()
	if ok {
		return st, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.all[query]; ok {
		return st, nil
	}
	made, err := s.on.PrepareContext(ctx, query)
	if err != nil {
		return preparedStatement{}, fmt.Errorf("prepare: %w", err)
	}
	if s.all == nil {
		s.all = map[string]preparedStatement{}
	}
	s.all[query] = preparedStatement{made}
	return s.all[query], nil
}

// close lets go of the statements. Those of a sql.Conn are not closed with it,
// and SQLite keeps a file open, and its log unmerged, for as long as one is
// left.
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
