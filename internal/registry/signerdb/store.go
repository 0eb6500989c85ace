// Package signerdb stores the signers that groups trust, and finds signatures of images.
package signerdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes signers, and finds signatures. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of signers in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is an open transaction with methods that change signers.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the listings of this package.
func Kinds() []store.Listing { return []store.Listing{signers.Listing()} }
