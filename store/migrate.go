package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"path"

	"github.com/pressly/goose/v3"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrate brings the schema up to date. A file of schema/ is one migration,
// numbered by its name, and never changes once it was released. A schema with
// migrations of a later program is refused: this one would not keep what they
// promise.
func (s *DB) migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, more ...goose.ProviderOption) error {
	files, err := schemaFiles.ReadDir("schema")
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var migrations []*goose.Migration
	for _, f := range files {
		text, err := schemaFiles.ReadFile(path.Join("schema", f.Name()))
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		up := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, s.Engine.schema(string(text)))
			return err
		}
		migrations = append(migrations, goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil))
	}
	options := append(more, goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
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
	if has > knows {
		return fmt.Errorf("the database has schema %d, of a later version of this program, which knows no more than %d; start that version, or restore a back-up", has, knows)
	}
	return nil
}
