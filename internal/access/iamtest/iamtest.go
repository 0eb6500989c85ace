// Package iamtest has the stores and fixtures for tests of groups, identities, roles, bindings and accounts.
package iamtest

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
)

// A Store contains the stores of the area for one database.
type Store struct {
	*store.DB
	*IAMStore
	*GrantLog
	*SigninStore
	*TokenStore
	*BudgetStore
	*People
}

// The stores of domains are embedded in Store, so their names must differ.
//
//nolint:revive // One comment describes the block.
type (
	IAMStore    = iamdb.Store
	GrantLog    = grantlog.Store
	SigninStore = signindb.Store
	TokenStore  = tokendb.Store
	BudgetStore = budgetdb.Store
	People      = admission.Store
)

// Combine combines the stores of a database.
func Combine(db *store.DB) *Store {
	return &Store{
		db, iamdb.New(db), grantlog.New(db), signindb.New(db), tokendb.New(db), budgetdb.New(db),
		admission.New(db),
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
