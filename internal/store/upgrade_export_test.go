package store

import (
	"context"
	"database/sql"
	"path"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An OldDatabase is a database as an earlier version of the program left it.
type OldDatabase struct {
	t  testing.TB
	db *sql.DB
}

// MakeOldDatabase makes the schema up to a migration in an empty database.
func MakeOldDatabase(t testing.TB, url string, last int64) *OldDatabase {
	t.Helper()
	driver, dialect, e := "sqlite", goose.DialectSQLite3, sqliteEngine
	if strings.Contains(url, "://") {
		driver, dialect, e = "pgx", goose.DialectPostgres, postgresEngine
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	files, err := schemaFiles.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	var migrations []*goose.Migration
	for _, f := range files {
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		text, err := schemaFiles.ReadFile(path.Join("schema", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		up := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, e.schema(string(text)))
			return err
		}
		migrations = append(migrations, goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil))
	}
	p, err := goose.NewProvider(dialect, db, nil, goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
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
