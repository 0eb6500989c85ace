package dump

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/health"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// A Loader is a transaction that fills an empty database with the rows of a Snapshot.
type Loader struct{ *store.Tx }

// Load creates a database at url with the schema of a Snapshot, and calls f to fill it in
// one transaction. It calls RequireEmpty first. f may be called again if the database
// reports a conflict.
func Load(ctx context.Context, url string, d *Snapshot, f func(*Loader) error) (err error) {
	if err := RequireEmpty(ctx, url, d.Schema); err != nil {
		return err
	}
	s, err := store.OpenSchema(ctx, url, d.Schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Write(ctx, func(t *store.Tx) error {
		l := &Loader{t}
		if err := l.prepare(ctx, d.Tables); err != nil {
			return err
		}
		resume, err := l.pauseTriggers(ctx)
		if err != nil {
			return err
		}
		if err := f(l); err != nil {
			return err
		}
		if err := l.setSequences(ctx, d.Sequences); err != nil {
			return err
		}
		return resume()
	})
}

// RequireEmpty returns fault.FailedPrecondition unless this program knows the schema with this version and
// the database at url is empty. A database that an interrupted Load of the same schema left counts as empty.
func RequireEmpty(ctx context.Context, url string, version int64) error {
	knows, err := store.KnownSchema()
	if err != nil {
		return err
	}
	if version > knows {
		return fault.New(fault.FailedPrecondition,
			"the back-up has schema %d, and this program knows no more than %d; use the version that made it, or a later one",
			version, knows)
	}
	if err := schema.CheckReleased(version); err != nil {
		return fault.New(fault.FailedPrecondition, "the back-up cannot be restored: %v", err)
	}
	if !store.IsPostgres(url) {
		info, err := os.Stat(url)
		if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
			return nil
		}
	}
	s, err := store.OpenToRead(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // nothing was written to the database
	has, err := health.SchemaVersion(ctx, s.Rows)
	if err != nil {
		return nil // the table of migrations does not exist, so the database is empty
	}
	full := fault.New(fault.FailedPrecondition, "the database is not empty; restore into a new one")
	if has == 0 {
		return nil
	}
	if has != version {
		return full
	}
	n, err := store.ReadColumn[int64](ctx, s.Rows, `
		SELECT (SELECT count(*) FROM groups) + (SELECT count(*) FROM identities)
		+ (SELECT count(*) FROM signing_keys) + (SELECT count(*) FROM blobs)`)
	if err == nil && n[0] > 0 {
		err = full
	}
	return err
}

// prepare deletes the rows that migrations have added, and lets rows refer to rows that are
// added later. It returns an error if the tables of the schema differ from the snapshot.
func (l *Loader) prepare(ctx context.Context, want []Table) error {
	text := `PRAGMA defer_foreign_keys = 1`
	if l.DB.Engine.Postgres {
		text = `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
			SET LOCAL enable_seqscan = on`
	}
	for _, one := range strings.Split(text, ";") {
		if _, err := l.Exec(ctx, strings.TrimSpace(one)); err != nil {
			return err
		}
	}
	have, err := tables(ctx, l.DB, l.Tx.Rows)
	if err != nil {
		return err
	}
	byName := func(a, b Table) int { return strings.Compare(a.Name, b.Name) }
	sorted := slices.SortedFunc(slices.Values(want), byName)
	if !slices.EqualFunc(slices.SortedFunc(slices.Values(have), byName), sorted, sameTable) {
		return fault.New(fault.FailedPrecondition, "the tables of the back-up are not those of its schema; it is damaged")
	}
	for _, t := range slices.Backward(have) {
		if _, err := l.Exec(ctx, `DELETE FROM `+t.Name); err != nil {
			return err
		}
	}
	return nil
}

// pauseTriggers keeps triggers from running until resume is called, because the snapshot
// already contains the rows that they would write. SQLite cannot pause a trigger, so
// pauseTriggers drops triggers there, and resume creates them again.
func (l *Loader) pauseTriggers(ctx context.Context) (resume func() error, _ error) {
	find, pause := `SELECT name, sql FROM sqlite_master WHERE type = 'trigger'`, `DROP TRIGGER %s`
	if l.DB.Engine.Postgres {
		find = `SELECT DISTINCT c.relname, 'ALTER TABLE ' || c.relname || ' ENABLE TRIGGER USER'
			FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid)`
		pause = `ALTER TABLE %s DISABLE TRIGGER USER`
	}
	triggers, err := store.ReadMap[string, string](ctx, l.Tx.Rows, find)
	if err != nil {
		return nil, err
	}
	for name := range triggers {
		if _, err := l.Exec(ctx, fmt.Sprintf(pause, name)); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, text := range triggers {
			if _, err := l.Exec(ctx, text); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// sameTable reports whether two tables have the same columns, in any order.
func sameTable(a, b Table) bool {
	byName := func(a, b Column) int { return cmp.Compare(a.Name, b.Name) }
	return a.Name == b.Name && slices.Equal(slices.SortedFunc(slices.Values(a.Columns), byName),
		slices.SortedFunc(slices.Values(b.Columns), byName))
}

// Fill adds the rows that next returns to a table, until next returns io.EOF, and
// returns their number. next may reuse a row when it is called again.
func (l *Loader) Fill(ctx context.Context, t Table, next func() ([]any, error)) (int64, error) {
	return l.CopyRows(ctx, t.Name, t.columnNames(), next)
}

// setSequences makes the database number new rows after the numbers in last.
func (l *Loader) setSequences(ctx context.Context, last map[string]int64) error {
	for table, n := range last {
		if n == 0 { // no row was ever added to the table
			continue
		}
		texts := []string{`SELECT setval(pg_get_serial_sequence($1, '` + numbered + `'), $2)`}
		if !l.DB.Engine.Postgres {
			texts = []string{
				`DELETE FROM sqlite_sequence WHERE name = $1 AND $2 > 0`, `INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)`,
			}
		}
		for _, text := range texts {
			if _, err := l.Exec(ctx, text, table, n); err != nil {
				return err
			}
		}
	}
	return nil
}
