// Package gcdb finds and removes garbage: blobs that no manifest refers to, and rows of the trash that nobody
// can restore.
package gcdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store finds and removes garbage. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns a Store that finds and removes garbage in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is an open transaction with methods that remove garbage.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
