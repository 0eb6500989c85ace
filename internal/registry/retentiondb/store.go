// Package retentiondb stores retention rules and applies them: it judges the images of a repo and deletes those that no
// rule keeps.
package retentiondb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about retention. It is safe for concurrent use.
type Store struct {
	*store.DB

	// KeepPulls is how long pulls stay recorded. 0: for ever.
	KeepPulls time.Duration

	registry *registrydb.Store
}

// New returns the store of retention in the database of a registry.
func New(r *registrydb.Store) *Store { return &Store{DB: r.DB, registry: r} }

// A Tx is a transaction with the changes to retention.
type Tx struct{ *store.Tx }

// In returns t with the changes to retention.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
