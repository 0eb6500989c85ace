// Package dump reads all rows of a database, and fills an empty database with them.
// Package backup writes the rows to files and reads them back. The package knows the
// tables only from the catalog of the database, so a new table or column needs no change
// here.
package dump

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/health"
)

// A Table is a table with its columns.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
}

// A Column is a column of a table. Type is one of the four types that the schema
// uses, by its PostgreSQL name.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// These are the types of columns.
const (
	Integer = "bigint"
	Text    = "text"
	Bytes   = "bytea"
	Flag    = "boolean"
)

// transient contains the tables whose rows matter only to running processes, and the
// table that goose writes when it runs migrations.
var transient = []string{"goose_db_version", "history", "leases", "replicas", "uploads"}

// columnNames returns the names of the columns.
func (t Table) columnNames() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// A Snapshot is one state of a database, without its transient tables.
type Snapshot struct {
	Schema    int64            // number of the last migration
	Tables    []Table          // each after the tables that it refers to
	Sequences map[string]int64 // for each table whose rows are numbered, the last number
	read      store.Reader
}

// Read calls f with the current state of the database, which stays the same while f
// runs.
func Read(ctx context.Context, s *store.DB, f func(*Snapshot) error) error {
	return s.Snapshot(ctx, func(read store.Reader) (err error) {
		d := &Snapshot{read: read}
		if s.Engine.Postgres { // each table is read completely, so no timeout applies
			settings := [][2]string{
				{"enable_seqscan", "on"}, {"statement_timeout", "0"}, {"idle_in_transaction_session_timeout", "0"},
			}
			for _, set := range settings {
				_, err := store.ReadColumn[string](ctx, read, `SELECT set_config($1, $2, true)`, set[0], set[1])
				if err != nil {
					return err
				}
			}
		}
		if d.Schema, err = health.SchemaVersion(ctx, read); err != nil {
			return err
		}
		if d.Tables, err = tables(ctx, s, read); err != nil {
			return err
		}
		if d.Sequences, err = sequences(ctx, s, read, d.Tables); err != nil {
			return err
		}
		return f(d)
	})
}

// Rows calls f for each row of a table. f must not keep the slice, because Rows reuses it.
func (d *Snapshot) Rows(ctx context.Context, t Table, f func(row []any) error) error {
	row, into := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i := range row {
		into[i] = &row[i]
	}
	query := `SELECT ` + strings.Join(t.columnNames(), ", ") + ` FROM ` + t.Name
	return d.read(ctx, query, nil, func(s store.Scanner) (bool, error) {
		if err := s.Scan(into...); err != nil {
			return false, err
		}
		for i, c := range t.Columns {
			switch v := row[i].(type) {
			case int64:
				if c.Type == Flag { // SQLite stores a flag as a number
					row[i] = v != 0
				}
			case []byte:
				if v == nil { // SQLite returns nil for an empty value, which is not NULL
					row[i] = []byte{}
				}
			}
		}
		return false, f(row)
	})
}

// tables returns the tables that are not transient, each after the tables that it refers
// to.
func tables(ctx context.Context, s *store.DB, read store.Reader) (found []Table, _ error) {
	columns, references := `
		SELECT m.name, c.name, lower(c.type) FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid`, `
		SELECT m.name, f."table", '' FROM sqlite_master AS m JOIN pragma_foreign_key_list(m.name) AS f
		WHERE m.type = 'table'`
	if s.Engine.Postgres {
		columns, references = `
			SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
			WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position`, `
			SELECT a.relname::text, b.relname::text, '' FROM pg_constraint AS c
			JOIN pg_class AS a ON a.oid = c.conrelid JOIN pg_class AS b ON b.oid = c.confrelid
			WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace`
	}
	err := readTriples(ctx, read, columns, func(table, column, kind string) error {
		if slices.Contains(transient, table) {
			return nil
		}
		kind, ok := columnTypes[kind]
		if !ok {
			return fmt.Errorf("column %s of table %s has a type that cannot be backed up", column, table)
		}
		if len(found) == 0 || found[len(found)-1].Name != table {
			found = append(found, Table{Name: table})
		}
		last := &found[len(found)-1]
		last.Columns = append(last.Columns, Column{column, kind})
		return nil
	})
	if err != nil {
		return nil, err
	}
	refersTo := map[string][]string{}
	err = readTriples(ctx, read, references, func(from, to, _ string) error {
		refersTo[from] = append(refersTo[from], to)
		return nil
	})
	return inOrderOfReferences(found, refersTo), err
}

// columnTypes contains the types of columns by their names in either database.
var columnTypes = map[string]string{
	"bigint": Integer, "integer": Integer, "text": Text, "bytea": Bytes, "blob": Bytes,
	"boolean": Flag,
}

// readTriples runs a query with three text columns and calls f for each row.
func readTriples(ctx context.Context, read store.Reader, query string, f func(a, b, c string) error) error {
	return read(ctx, query, nil, func(row store.Scanner) (bool, error) {
		var a, b, c string
		if err := row.Scan(&a, &b, &c); err != nil {
			return false, err
		}
		return false, f(a, b, c)
	})
}

// inOrderOfReferences sorts tables so that each comes after the tables that it refers to.
func inOrderOfReferences(all []Table, refersTo map[string][]string) []Table {
	byName, done := map[string]Table{}, map[string]bool{}
	for _, t := range all {
		byName[t.Name] = t
	}
	sorted := make([]Table, 0, len(all))
	var visit func(name string)
	visit = func(name string) {
		t, ok := byName[name]
		if !ok || done[name] {
			return
		}
		done[name] = true
		for _, target := range refersTo[name] {
			visit(target)
		}
		sorted = append(sorted, t)
	}
	for _, t := range all {
		visit(t.Name)
	}
	return sorted
}

// numbered is the name of the column in which the database numbers rows.
const numbered = "seq"

// sequences returns the last number in each table whose rows the database numbers. It may
// be greater than the number of any remaining row.
func sequences(
	ctx context.Context, s *store.DB, read store.Reader, tables []Table,
) (map[string]int64, error) {
	if !s.Engine.Postgres {
		return store.ReadMap[string, int64](ctx, read,
			`SELECT name, seq FROM sqlite_sequence WHERE name != 'goose_db_version'`)
	}
	numbers := map[string]int64{}
	for _, t := range tables {
		sequence, err := store.ReadColumn[*string](ctx, read, `SELECT pg_get_serial_sequence(t.table_name, t.column_name)
			FROM information_schema.columns AS t WHERE t.table_schema = current_schema() AND t.table_name = $1
			AND t.column_name = $2 AND t.is_identity = 'YES'`, t.Name, numbered)
		if err != nil {
			return nil, err
		}
		if len(sequence) == 0 {
			continue
		}
		last, err := store.ReadColumn[int64](ctx, read,
			`SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+*sequence[0])
		if err != nil {
			return nil, err
		}
		if last[0] > 0 {
			numbers[t.Name] = last[0]
		}
	}
	return numbers, nil
}
