// Package schema holds the migrations of the database. They are written once, in
// SQL that is translated for SQLite and PostgreSQL. Each file is one migration,
// numbered by its name, and never changes after it was released.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// A Dialect is the SQL dialect of a migration.
type Dialect struct {
	goose     goose.Dialect
	translate func(text string) string
}

// These are the dialects of the two engines.
var (
	SQLite   = Dialect{goose.DialectSQLite3, toSQLite}
	Postgres = Dialect{goose.DialectPostgres, toPostgres}
)

// First is the number of the first migration, which creates the schema of v0.1.0.
// Unreleased versions had migrations with lower numbers.
const First = 100

// NeedsQuery selects the number of the oldest migration that a program must know to
// serve the database.
const NeedsQuery = `SELECT version FROM schema_needs WHERE id = 1`

// Migrate runs the missing migrations up to the one numbered last, or all of them if
// last is 0. If a later program has already run more migrations, Migrate accepts the
// database if those migrations allow this program to serve it, and returns an error
// otherwise. Migrate refuses the database of an unreleased version and does not change
// it. asFault converts the errors of the driver.
func Migrate(
	ctx context.Context, db *sql.DB, d Dialect, last int64, asFault func(error) error, options ...goose.ProviderOption,
) error {
	migrations, err := d.Migrations()
	if err != nil {
		return err
	}
	if last > 0 {
		migrations = slices.DeleteFunc(migrations, func(m *goose.Migration) bool { return m.Version > last })
	}
	options = append(options, goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(d.goose, db, nil, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	before, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", asFault(err))
	}
	if err := CheckReleased(before); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", asFault(err))
	}
	has, knows, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", asFault(err))
	}
	if has <= knows {
		return nil
	}
	var needs int64
	if err := db.QueryRowContext(ctx, NeedsQuery).Scan(&needs); err != nil {
		return fmt.Errorf("migrate: %w", asFault(err))
	}
	if knows < needs {
		return fmt.Errorf("the database has schema %d, which needs a program that knows schema %d or later, "+
			"and this program knows schema %d; start a later version, or restore a back-up from before the upgrade",
			has, needs, knows)
	}
	return nil
}

// CheckReleased returns an error with advice if a database or a back-up was
// created by an unreleased version. version is the number of its last migration, or 0
// if the database is empty.
func CheckReleased(version int64) error {
	if version <= 0 || version >= First {
		return nil
	}
	return fmt.Errorf("schema %d was created by a version before v0.1.0, the first release, and cannot be upgraded; "+
		"use an empty database and push the images again, or use the version that created it", version)
}

// Migrations returns the migrations in their order.
func (d Dialect) Migrations() (migrations []*goose.Migration, _ error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for _, f := range entries {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		up := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, d.translate(string(text)))
			return err
		}
		migrations = append(migrations, goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil))
	}
	return migrations, nil
}

// Last returns the number of the newest migration in this program.
func Last() (int64, error) {
	migrations, err := SQLite.Migrations()
	if err != nil {
		return 0, err
	}
	return migrations[len(migrations)-1].Version, nil
}

// toSQLite translates a migration to SQLite. It makes the key of a row its rowid,
// because SQLite appends the rowid to every index anyway.
func toSQLite(text string) string {
	text = linesFor("sqlite", text)
	text = strings.NewReplacer(
		"seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "seq INTEGER PRIMARY KEY AUTOINCREMENT",
		"BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY",
		"BYTEA", "BLOB",
		"  PRIMARY KEY (kind, grp, shard)\n)", "  PRIMARY KEY (kind, grp, shard)\n) WITHOUT ROWID",
		"  PRIMARY KEY (key, seg)\n)", "  PRIMARY KEY (key, seg)\n) WITHOUT ROWID",
		"  PRIMARY KEY (grp, chunk)\n)", "  PRIMARY KEY (grp, chunk)\n) WITHOUT ROWID",
		"  PRIMARY KEY (package, root, advisory)\n)", "  PRIMARY KEY (package, root, advisory)\n) WITHOUT ROWID",
		"  PRIMARY KEY (chunk, package)\n)", "  PRIMARY KEY (chunk, package)\n) WITHOUT ROWID",
	).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "CREATE INDEX") {
			lines[i] = strings.Replace(line, ", seg)", ")", 1)
		}
	}
	return strings.Join(lines, "\n")
}

// toPostgres translates a migration to PostgreSQL. It makes text be ordered by its
// bytes, as in SQLite, and leaves room in the pages of counters for updates in
// place.
func toPostgres(text string) string {
	text = linesFor("postgresql", text)
	text = strings.ReplaceAll(text, " TEXT ", ` TEXT COLLATE "C" `)
	return strings.ReplaceAll(text, "  PRIMARY KEY (kind, grp, shard)\n)",
		"  PRIMARY KEY (kind, grp, shard)\n) WITH (fillfactor = 50)")
}

// linesFor returns the lines of a migration that an engine runs. They are the lines
// after a line "-- on" with the name of the engine or with "both", and the lines
// before the first such line. Statements that have no common syntax, such as
// triggers, are written once for each engine.
func linesFor(engine, text string) string {
	var lines []string
	skipped := false
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "-- on "); ok {
			skipped = name != engine && name != "both"
		}
		if !skipped {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
