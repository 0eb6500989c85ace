// Package tokendb stores the signing keys of our issuer, the states of other issuers, and the last exchanges and
// denials of each identity.
package tokendb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the tables of the token service in a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the Store of a database.
func New(db *store.DB) *Store { return &Store{DB: db} }

// A Tx is an open transaction with methods that change signing keys.
type Tx struct{ *store.Tx }

// In returns t with the methods of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
