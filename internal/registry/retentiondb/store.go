// Package retentiondb stores retention rules and applies them: it deletes the images of a repo that no rule keeps.
package retentiondb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads, writes and applies retention rules. It is safe for concurrent use.
type Store struct {
	*store.DB

	// KeepPulls is how long records of pulls are stored; 0 means forever.
	KeepPulls time.Duration

	registry *registrydb.Store
}

// New returns a Store for the retention rules in the database of a registry.
func New(r *registrydb.Store) *Store { return &Store{DB: r.DB, registry: r} }

// A Tx is an open transaction with methods that apply retention rules.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}
