// Package dbtest creates databases on both engines, for the tests of all packages.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var databases atomic.Int64

// Each runs f against every engine: always SQLite, and PostgreSQL if
// HOLDFAST_TEST_POSTGRES names a server, as in make test. Each call of f gets
// its own database.
func Each(t *testing.T, f func(t *testing.T, db *store.DB)) {
	t.Helper()
	EachURL(t, func(t *testing.T, url string) { f(t, Open(t, url)) })
}

// EachURL runs f with the address of a new database, once for every engine.
func EachURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// Story is Each for tests of code above the stores, for which both engines mean the same requests: the tests of the
// stores cover the engines. If testkit.Complete reports true, it runs f against every engine, otherwise against one.
// Tests of locks, transactions, crashes and concurrent requests use Each.
func Story(t *testing.T, f func(t *testing.T, db *store.DB)) {
	t.Helper()
	StoryURL(t, func(t *testing.T, url string) { f(t, Open(t, url)) })
}

// StoryURL runs f with the address of a new database, on the engines that Story chooses. The name of the test decides
// which engine is the only one; it is SQLite if there is no PostgreSQL server.
func StoryURL(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	both, postgres := testkit.Complete(), len(t.Name())%2 == 1 && os.Getenv("HOLDFAST_TEST_POSTGRES") != ""
	if both || !postgres {
		t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	}
	if both || postgres {
		t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
	}
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
	path := filepath.Join(folder(t), "holdfast.db")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// folder returns a new folder, which is removed after the test. It is in the folder that HOLDFAST_TEST_MEMORY names:
// in memory, where a commit does not wait for the disk. Without the variable, it is a temporary folder.
func folder(t testing.TB) string {
	t.Helper()
	memory := os.Getenv("HOLDFAST_TEST_MEMORY")
	if memory == "" {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(memory, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
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

// Open opens the database at url until the test ends.
func Open(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// WantExact checks that every counter equals the number of its rows, and that deleted resources have no counters.
func WantExact(t testing.TB, db *store.DB) {
	t.Helper()
	drifts, err := recount.Drifts(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drifts {
		t.Errorf("counter of %s below %s%d: %d of %d, directly %d of %d", d.Kind, d.Group, d.Key, d.Counted, d.Rows,
			d.DirectCounted, d.DirectRows)
	}
	stray, err := strayCounters(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if stray != 0 {
		t.Errorf("%d counters of what is gone", stray)
	}
}

// strayCounters returns the number of counters for groups, providers and repos
// that do not exist.
func strayCounters(ctx context.Context, db *store.DB) (n int, err error) {
	err = db.Row(ctx, `
		SELECT count(*) FROM counters
		WHERE kind NOT IN ('advisory_partitions', 'advisory_names')
		AND grp NOT IN (SELECT seg FROM groups UNION ALL SELECT seg FROM identity_providers UNION ALL SELECT seg FROM repos
			UNION ALL SELECT seg FROM trash_repos UNION ALL SELECT seg FROM subscriptions)`, nil, &n)
	return n, err
}

// Events returns all events in the outbox.
func Events(t testing.TB, db *store.DB) []resource.Event {
	t.Helper()
	events, err := outbox.Read(t.Context(), db, 0, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// Everything returns every row of every table as a text, sorted.
func Everything(t testing.TB, db *store.DB) (all []string) {
	t.Helper()
	tables := `SELECT name FROM sqlite_master
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'`
	if db.Engine.Postgres {
		tables = `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT LIKE 'goose_%'`
	}
	names, err := store.ReadColumn[string](t.Context(), db.Rows, tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range names {
		row := `CAST(r AS TEXT)`
		if !db.Engine.Postgres {
			err := db.Row(t.Context(), `SELECT group_concat('quote("' || name || '")', ' || '','' || ')
				FROM pragma_table_info($1)`, []any{table}, &row)
			if err != nil {
				t.Fatal(err)
			}
		}
		rows, err := store.ReadColumn[string](t.Context(), db.Rows, `SELECT `+row+` FROM "`+table+`" AS r`)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			all = append(all, table+" "+r)
		}
	}
	slices.Sort(all)
	return all
}
