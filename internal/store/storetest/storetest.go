// Package storetest opens the stores of all domains on both engines, for tests that combine several domains. A
// test of one domain uses the kit of its area: iamtest, registrytest or vulntest.
package storetest

import (
	"context"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// Each runs f against every engine, as dbtest.Each does.
func Each(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *store.DB) { f(t, Combine(db)) })
}

// EachURL runs f with the address of a new database, once for every engine.
func EachURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	dbtest.EachURL(t, f)
}

// Story runs f on the engines that dbtest.Story chooses.
func Story(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	dbtest.Story(t, func(t *testing.T, db *store.DB) { f(t, Combine(db)) })
}

// StoryURL runs f with the address of a new database, on the engines that dbtest.Story chooses.
func StoryURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	dbtest.StoryURL(t, f)
}

// EachEmpty runs f with the address of an empty database without a schema, once for every engine.
func EachEmpty(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	dbtest.EachEmpty(t, f)
}

// SQLite returns the path of a new database with the schema.
func SQLite(t testing.TB) string {
	t.Helper()
	return dbtest.SQLite(t)
}

// Postgres returns the address of a new database that already has the schema.
func Postgres(t testing.TB) string {
	t.Helper()
	return dbtest.Postgres(t)
}

// EmptyPostgres is Postgres without the schema.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return dbtest.EmptyPostgres(t)
}

// A Store contains the stores of all domains for one database, so that a test can prepare the data
// that it needs.
type Store struct {
	*store.DB
	*IAMStore
	*GrantLog
	*SigninStore
	*TokenStore
	*RegistryStore
	*ImageStore
	*PullStore
	*RetentionStore
	*SourceStore
	*SignerStore
	*GarbageStore
	*AdvisoryStore
	*EventStore
	*FindingStore
	*BudgetStore
	*People
}

// The stores of domains are embedded in Store, so their names must differ.
//
//nolint:revive // One comment describes the block.
type (
	IAMStore       = iamdb.Store
	GrantLog       = grantlog.Store
	SigninStore    = signindb.Store
	TokenStore     = tokendb.Store
	RegistryStore  = registrydb.Store
	ImageStore     = imagedb.Store
	PullStore      = pulldb.Store
	RetentionStore = retentiondb.Store
	SourceStore    = sourcedb.Store
	SignerStore    = signerdb.Store
	GarbageStore   = gcdb.Store
	AdvisoryStore  = advisorydb.Store
	EventStore     = eventdb.Store
	FindingStore   = findingdb.Store
	BudgetStore    = budgetdb.Store
	People         = admission.Store
)

// Combine combines the stores of all domains of a database.
func Combine(db *store.DB) *Store {
	registry := registrydb.New(db)
	return &Store{
		db, iamdb.New(db), grantlog.New(db), signindb.New(db), tokendb.New(db), registry, imagedb.New(db), pulldb.New(db),
		retentiondb.New(registry), sourcedb.New(registry), signerdb.New(db), gcdb.New(db), advisorydb.New(db),
		eventdb.New(db), findingdb.New(db), budgetdb.New(db), admission.New(db),
	}
}

// Open opens the store at url until the test ends.
func Open(t testing.TB, url string) *Store {
	t.Helper()
	return Combine(dbtest.Open(t, url))
}

// Drifts returns the counters that differ from the rows that they count.
func (s *Store) Drifts(ctx context.Context) ([]recount.Drift, error) {
	return recount.Drifts(ctx, s.DB)
}
