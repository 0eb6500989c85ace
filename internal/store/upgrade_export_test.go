package store

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// An OldDatabase is a database in the state in which an earlier version of the program left it.
type OldDatabase struct {
	t  testing.TB
	db *sql.DB
}

// MakeOldDatabase creates the schema in an empty database, up to the migration numbered last.
func MakeOldDatabase(t testing.TB, url string, last int64) *OldDatabase {
	t.Helper()
	driver, dialect, e := "sqlite", goose.DialectSQLite3, schema.SQLite
	if strings.Contains(url, "://") {
		driver, dialect, e = "pgx", goose.DialectPostgres, schema.Postgres
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	migrations, err := e.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(dialect, db, nil,
		goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = p.UpTo(t.Context(), last)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &OldDatabase{t, db}
}

// Exec runs a statement.
func (o *OldDatabase) Exec(statement string, args ...any) {
	o.t.Helper()
	if _, err := o.db.ExecContext(o.t.Context(), statement, args...); err != nil {
		o.t.Fatalf("%s: %v", statement, err)
	}
}

// Close ends the connection, so that the program can open the database.
func (o *OldDatabase) Close() {
	o.t.Helper()
	if err := o.db.Close(); err != nil {
		o.t.Fatal(err)
	}
}

// Place returns the values for the first columns of a resource's row, which say where it is in the
// tree.
func Place(uid resource.UID) []any { return TreeColumns(uid) }
