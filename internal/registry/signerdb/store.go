// Package signerdb stores the signers whose signatures count in a group, and finds signatures of images.
package signerdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about signers. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of signers in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a transaction with the changes to signers.
type Tx struct{ *store.Tx }

// In returns t with the changes to signers.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the listings of this package.
func Kinds() []store.Listing { return []store.Listing{signers.Listing()} }
