package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrate brings the schema up to date. A file of schema/ is one migration,
// numbered by its name, and never changes once it was released. A schema with
// migrations of a later program is served if these say that this program can, and
// refused otherwise.
func (s *DB) migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, more ...goose.ProviderOption) error {
	all, err := migrations(s.Engine)
	if err != nil {
		return err
	}
	if s.schema > 0 {
		all = slices.DeleteFunc(all, func(m *goose.Migration) bool { return m.Version > s.schema })
	}
	options := append(more, goose.WithGoMigrations(all...), goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(dialect, db, nil, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", s.outcome(err))
	}
	has, knows, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", s.outcome(err))
	}
	if has <= knows {
		return nil
	}
	var needs int64
	if err := db.QueryRowContext(ctx, needsQuery).Scan(&needs); err != nil {
		return fmt.Errorf("migrate: %w", s.outcome(err))
	}
	if knows < needs {
		return fmt.Errorf("the database has schema %d, which programs can serve that know schema %d, and this one knows no more than %d; "+
			"start a later version, or restore a back-up from before the upgrade", has, needs, knows)
	}
	return nil
}

const needsQuery = `SELECT version FROM schema_needs WHERE id = 1`

// migrations returns the migrations in their order, in the words of an engine.
func migrations(e Engine) (all []*goose.Migration, _ error) {
	files, err := schemaFiles.ReadDir("schema")
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for _, f := range files {
		text, err := schemaFiles.ReadFile(path.Join("schema", f.Name()))
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		up := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, e.schema(string(text)))
			return err
		}
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil))
	}
	return all, nil
}

// onlyFor returns the lines of a migration that an engine runs: those that follow a line "-- on"
// with its name or with "both", and those before the first such line. What is not in the language
// that both have, such as triggers, is written twice.
func onlyFor(engine, text string) string {
	var all []string
	skipped := false
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "-- on "); ok {
			skipped = name != engine && name != "both"
		}
		if !skipped {
			all = append(all, line)
		}
	}
	return strings.Join(all, "")
}
