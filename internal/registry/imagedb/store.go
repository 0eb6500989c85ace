// Package imagedb stores facts about the images of repos: the queues for inspecting images and reading their SBOMs,
// the numbers that identify images in bitmaps, and the tags that point to images now or did so in the past.
package imagedb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the tables of images. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of images in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is an open transaction with methods that change images.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
