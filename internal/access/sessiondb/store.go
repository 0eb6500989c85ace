// Package sessiondb stores the sessions of people with their refresh tokens, and the revocations that make tokens void.
//
// Every exported method of Store is one transaction, with its event. Methods of Tx run inside a transaction of the
// caller.
package sessiondb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the sessions of a database. It is safe for concurrent use.
type Store struct {
	*store.DB
	admits func(context.Context, *store.Tx, resource.Session) error
}

// New returns the Store of a database. admits returns an error if the identity of a new session may not sign in, or if
// the proof of the sign-in is no longer valid. It keeps that true until the commit.
func New(db *store.DB, admits func(context.Context, *store.Tx, resource.Session) error) *Store {
	return &Store{DB: db, admits: admits}
}

// A Tx is an open transaction with methods that change sessions.
type Tx struct{ *store.Tx }

// In returns t with the methods of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
