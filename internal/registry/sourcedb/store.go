// Package sourcedb stores where images come from and where they are copied to: the upstreams that groups mirror, the
// repos that other repos follow, and replications to other registries.
package sourcedb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes upstreams and the sources of repos. It is safe for concurrent use.
type Store struct {
	*store.DB

	registry *registrydb.Store
}

// New returns a Store for the sources of images in the database of a registry.
func New(r *registrydb.Store) *Store { return &Store{DB: r.DB, registry: r} }

// A Tx is an open transaction with methods that change sources of images.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the listings of this package.
func Kinds() []store.Listing { return []store.Listing{upstreams.Listing(), replications.Listing()} }
