package eventtest

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
)

// A Store contains the stores that tests of subscriptions need, for one database.
type Store struct {
	*store.DB
	*IAMStore
	*EventStore
	*People
}

// The stores of domains are embedded in Store, so their names must differ.
//
//nolint:revive // One comment describes the block.
type (
	IAMStore   = iamdb.Store
	EventStore = eventdb.Store
	People     = admission.Store
)

// Combine combines the stores of a database.
func Combine(db *store.DB) *Store {
	return &Store{db, iamdb.New(db), eventdb.New(db), admission.New(db)}
}

// Each runs f against every engine, each time with an empty store.
func Each(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *store.DB) { f(t, Combine(db)) })
}
