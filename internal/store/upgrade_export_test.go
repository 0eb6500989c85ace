package store

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// An OldDatabase is a database as an earlier version of the program left it.
type OldDatabase struct {
	t  testing.TB
	db *sql.DB
}

// MakeOldDatabase makes the schema up to a migration in an empty database.
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

// Place is where something is, as the first columns of every kind have it.
func Place(uid resource.UID) []any { return TreeColumns(uid) }
