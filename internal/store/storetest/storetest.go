// Package storetest opens empty stores on both engines, for the tests of all packages.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
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
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

var databases atomic.Int64

// Each runs f against every engine: always SQLite, and PostgreSQL if
// HOLDFAST_TEST_POSTGRES names a server, as in make test. Each call of f gets
// its own store.
func Each(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	EachURL(t, func(t *testing.T, url string) { f(t, Open(t, url)) })
}

// EachURL runs f with the address of a new database, once for every engine.
func EachURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// EachEmpty runs f with the address of an empty database without a schema,
// once for every engine.
func EachEmpty(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "holdfast.db")) })
	t.Run("postgres", func(t *testing.T) { f(t, EmptyPostgres(t)) })
}

// SQLite returns the path of a new database with the schema. It is a copy of a database
// that is created once, because the migrations take longer than most tests.
func SQLite(t testing.TB) string {
	t.Helper()
	content, err := sqliteModel()
	path := filepath.Join(t.TempDir(), "holdfast.db")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var sqliteModel = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "holdfast-model-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }() // if this fails, the system deletes the folder later
	path := filepath.Join(folder, "holdfast.db")
	if err := makeModel(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func makeModel(address string) error {
	s, err := store.Open(context.Background(), address)
	if err != nil {
		return err
	}
	_, err = s.Exec(context.Background(), `DELETE FROM history`) // a copy of the database starts its own history
	return errors.Join(err, s.Close())
}

// Postgres returns the address of a new database that already has the schema.
// The database is dropped after the test. Postgres skips the test if there is
// no server.
func Postgres(t testing.TB) string {
	t.Helper()
	server := postgresServer(t)
	model.Do(func() {
		name := fmt.Sprintf("model%d", os.Getpid())
		admin(t, server, "DROP DATABASE IF EXISTS "+name)
		admin(t, server, "CREATE DATABASE "+name)
		if err := makeModel(on(t, server, name)); err != nil {
			t.Fatal(err)
		}
		template = " TEMPLATE " + name
		if version(t, server) >= 150000 {
			// takes half the time of the default strategy if the server does not wait for its disk
			template += " STRATEGY file_copy"
		}
	})
	if template == "" {
		t.Fatal("the schema could not be made; an earlier test tells why")
	}
	return newDatabase(t, server, template)
}

// The template database stays until the server ends, which the script with-postgres takes care of.
var (
	model    sync.Once
	template string // the clause that creates a database from the template
)

// version returns the version of a server as a number, such as 150004.
func version(t testing.TB, server string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server)
	if err == nil {
		defer c.Close(context.WithoutCancel(t.Context()))
		err = c.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).Scan(&n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// EmptyPostgres is Postgres without the schema.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, postgresServer(t), "")
}

func postgresServer(t testing.TB) string {
	t.Helper()
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
	}
	return server
}

func newDatabase(t testing.TB, server, from string) string {
	t.Helper()
	name := fmt.Sprintf("t%d_%d", os.Getpid(), databases.Add(1))
	admin(t, server, "CREATE DATABASE "+name+from)
	t.Cleanup(func() { admin(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return on(t, server, name)
}

// on returns the address of a database on a server.
func on(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func admin(t testing.TB, server, statement string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // t.Context() is canceled when this runs as a cleanup
	c, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, statement); err != nil {
		t.Fatal(err)
	}
}

// A Store contains the stores of all domains for one database, so that a test can prepare the data
// that it needs.
type Store struct {
	*store.DB
	*iamStore
	*grantLog
	*signinStore
	*registryStore
	*imageStore
	*pullStore
	*retentionStore
	*sourceStore
	*signerStore
	*garbageStore
	*advisoryStore
	*eventStore
	*findingStore
	*people
}

// These types are embedded in Store, so their names must differ.
type (
	iamStore       = iamdb.Store
	grantLog       = grantlog.Store
	signinStore    = signindb.Store
	registryStore  = registrydb.Store
	imageStore     = imagedb.Store
	pullStore      = pulldb.Store
	retentionStore = retentiondb.Store
	sourceStore    = sourcedb.Store
	signerStore    = signerdb.Store
	garbageStore   = gcdb.Store
	advisoryStore  = advisorydb.Store
	eventStore     = eventdb.Store
	findingStore   = findingdb.Store
	people         = admission.Store
)

// Combine combines the stores of all domains of a database.
func Combine(db *store.DB) *Store {
	registry := registrydb.New(db)
	return &Store{
		db, iamdb.New(db), grantlog.New(db), signindb.New(db), registry, imagedb.New(db), pulldb.New(db),
		retentiondb.New(registry), sourcedb.New(registry), signerdb.New(db), gcdb.New(db), advisorydb.New(db),
		eventdb.New(db), findingdb.New(db), admission.New(db),
	}
}

// Open opens the store at url until the test ends.
func Open(t testing.TB, url string) *Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return Combine(s)
}

// Drifts returns the counters that differ from the rows that they count.
func (s *Store) Drifts(ctx context.Context) ([]recount.Drift, error) {
	return recount.Drifts(ctx, s.DB)
}
