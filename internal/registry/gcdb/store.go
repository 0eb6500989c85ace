// Package gcdb finds and removes what nothing needs any longer: blobs that no manifest refers to, and remains of the trash.
package gcdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about garbage. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of garbage in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a transaction with the changes to garbage.
type Tx struct{ *store.Tx }

// In returns t with the changes to garbage.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
