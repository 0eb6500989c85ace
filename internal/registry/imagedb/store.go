// Package imagedb stores what is known about the images of repos: the queue in which they wait for their inspection and
// for that of their SBOMs, the numbers by which bitmaps name them, and which tags name them, now and in the past.
package imagedb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about images. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of images in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a transaction with the changes to images.
type Tx struct{ *store.Tx }

// In returns t with the changes to images.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
