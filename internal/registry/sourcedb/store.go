// Package sourcedb stores where images come from: the upstreams that groups mirror, and the repos that other repos follow.
package sourcedb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about sources of images. It is safe for concurrent use.
type Store struct {
	*store.DB

	registry *registrydb.Store
}

// New returns the store of sources of images in the database of a registry.
func New(r *registrydb.Store) *Store { return &Store{DB: r.DB, registry: r} }

// A Tx is a transaction with the changes to sources of images.
type Tx struct{ *store.Tx }

// In returns t with the changes to sources of images.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the listings of this package.
func Kinds() []store.Listing { return []store.Listing{upstreams.Listing()} }
