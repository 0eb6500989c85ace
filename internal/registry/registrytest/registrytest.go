// Package registrytest has the stores and fixtures for tests of repos and images.
package registrytest

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
)

// A Store contains the stores of the area for one database.
type Store struct {
	*store.DB
	*IAMStore
	*RegistryStore
	*ImageStore
	*PullStore
	*RetentionStore
	*SourceStore
	*SignerStore
	*GarbageStore
	*BudgetStore
	*People
}

// The stores of domains are embedded in Store, so their names must differ.
//
//nolint:revive // One comment describes the block.
type (
	IAMStore       = iamdb.Store
	RegistryStore  = registrydb.Store
	ImageStore     = imagedb.Store
	PullStore      = pulldb.Store
	RetentionStore = retentiondb.Store
	SourceStore    = sourcedb.Store
	SignerStore    = signerdb.Store
	GarbageStore   = gcdb.Store
	BudgetStore    = budgetdb.Store
	People         = admission.Store
)

// Combine combines the stores of a database.
func Combine(db *store.DB) *Store {
	registry := registrydb.New(db)
	return &Store{
		db, iamdb.New(db), registry, imagedb.New(db), pulldb.New(db), retentiondb.New(registry),
		sourcedb.New(registry), signerdb.New(db), gcdb.New(db),
		budgetdb.New(db), admission.New(db),
	}
}

// Open opens the store at url until the test ends.
func Open(t testing.TB, url string) *Store {
	t.Helper()
	return Combine(dbtest.Open(t, url))
}

// Each runs f against every engine, each time with an empty store.
func Each(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *store.DB) { f(t, Combine(db)) })
}
