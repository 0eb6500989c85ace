package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"
)

// This file reads a whole database, and load.go writes one: package backup turns the
// rows into files in between. Both know only what the catalog of the database says,
// so a new table or column needs no change here.

// A Table is a table with its columns.
type Table struct {
	Name    string        `json:"name"`
	Columns []TableColumn `json:"columns"`
}

// A TableColumn is a column of a table. Its type is one of the four that the schema
// uses, under the name that PostgreSQL has for it.
type TableColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// The types of columns.
const (
	IntegerColumn = "bigint"
	TextColumn    = "text"
	BytesColumn   = "bytea"
	FlagColumn    = "boolean"
)

// transient are the tables that mean something only to the processes that run now,
// and that of goose, which Load writes itself.
var transient = []string{"goose_db_version", "history", "leases", "replicas", "uploads"}

// columnNames returns the columns of the table, as statements name them.
func (t Table) columnNames() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// OpenToRead connects to the database at url for Dump and other reads. It neither
// changes the schema nor locks the file of SQLite, so a server may run beside it.
func OpenToRead(ctx context.Context, address string) (*DB, error) {
	s := newDB()
	if IsPostgres(address) {
		cfg, err := postgresConfig(address)
		if err != nil {
			return nil, err
		}
		s.Engine, s.read = postgresEngine, stdlib.OpenDB(*cfg)
	} else {
		if _, err := os.Stat(address); err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		on, err := sql.Open("sqlite", "file:"+(&url.URL{Path: address}).EscapedPath()+
			"?mode=rw&_pragma=busy_timeout(5000)&_pragma=query_only(1)") // rw: a reader of the log needs its index
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", address, err)
		}
		s.Engine, s.read = sqliteEngine, on
	}
	s.stmts.on = s.read
	s.close = append(s.close, s.read.Close, s.stmts.close)
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// A Dump is one state of a database, as far as it is worth keeping.
type Dump struct {
	Schema    int64            // the number of its last migration
	Tables    []Table          // each after those that it refers to
	Sequences map[string]int64 // of each table whose rows are numbered, the last number
	read      Reader
}

// Dump calls f with the current state of the database, which stays the same while f
// runs.
func (s *DB) Dump(ctx context.Context, f func(*Dump) error) error {
	return s.Snapshot(ctx, func(read Reader) (err error) {
		d := &Dump{read: read}
		if s.Engine.Postgres { // a table is read from its beginning to its end, however long that takes
			for _, set := range []string{"enable_seqscan=on", "statement_timeout=0", "idle_in_transaction_session_timeout=0"} {
				name, value, _ := strings.Cut(set, "=")
				if _, err := ReadColumn[string](ctx, read, `SELECT set_config($1, $2, true)`, name, value); err != nil {
					return err
				}
			}
		}
		if d.Schema, err = schemaVersion(ctx, read); err != nil {
			return err
		}
		if d.Tables, err = s.tables(ctx, read); err != nil {
			return err
		}
		if d.Sequences, err = s.sequences(ctx, read, d.Tables); err != nil {
			return err
		}
		return f(d)
	})
}

// schemaVersion returns the number of the last migration.
func schemaVersion(ctx context.Context, read Reader) (int64, error) {
	all, err := ReadColumn[int64](ctx, read, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`)
	if err != nil {
		return 0, fmt.Errorf("the database has no schema: %w", err)
	}
	return all[0], nil
}

// Rows calls f for each row of a table. The slice belongs to Rows and is used again.
func (d *Dump) Rows(ctx context.Context, t Table, f func(row []any) error) error {
	row, into := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i := range row {
		into[i] = &row[i]
	}
	return d.read(ctx, `SELECT `+t.columnNames()+` FROM `+t.Name, nil, func(s Scanner) (bool, error) {
		if err := s.Scan(into...); err != nil {
			return false, err
		}
		for i, c := range t.Columns {
			switch v := row[i].(type) {
			case int64:
				if c.Type == FlagColumn { // SQLite has no type for it
					row[i] = v != 0
				}
			case []byte:
				if v == nil { // empty, not NULL
					row[i] = []byte{}
				}
			}
		}
		return false, f(row)
	})
}

// tables returns the tables that are not transient, each after those that it refers
// to.
func (s *DB) tables(ctx context.Context, read Reader) (all []Table, _ error) {
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
		if len(all) == 0 || all[len(all)-1].Name != table {
			all = append(all, Table{Name: table})
		}
		last := &all[len(all)-1]
		last.Columns = append(last.Columns, TableColumn{column, kind})
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
	return inOrderOfReferences(all, refersTo), err
}

// columnTypes are the types of columns by their names in either database.
var columnTypes = map[string]string{
	"bigint": IntegerColumn, "integer": IntegerColumn, "text": TextColumn, "bytea": BytesColumn, "blob": BytesColumn,
	"boolean": FlagColumn,
}

// readTriples calls f for each row of a query of three texts.
func readTriples(ctx context.Context, read Reader, query string, f func(a, b, c string) error) error {
	return read(ctx, query, nil, func(row Scanner) (bool, error) {
		var a, b, c string
		if err := row.Scan(&a, &b, &c); err != nil {
			return false, err
		}
		return false, f(a, b, c)
	})
}

// inOrderOfReferences sorts tables so that each comes after those that it refers to.
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
		for _, other := range refersTo[name] {
			visit(other)
		}
		sorted = append(sorted, t)
	}
	for _, t := range all {
		visit(t.Name)
	}
	return sorted
}

// numbered is the column by which the database numbers rows.
const numbered = "seq"

// sequences returns the last number of each table whose rows the database numbers.
// It may be greater than that of any row that is left.
func (s *DB) sequences(ctx context.Context, read Reader, tables []Table) (map[string]int64, error) {
	if !s.Engine.Postgres {
		return ReadMap[string, int64](ctx, read, `SELECT name, seq FROM sqlite_sequence WHERE name != 'goose_db_version'`)
	}
	all := map[string]int64{}
	for _, t := range tables {
		sequence, err := ReadColumn[*string](ctx, read, `SELECT pg_get_serial_sequence(t.table_name, t.column_name)
			FROM information_schema.columns AS t WHERE t.table_schema = current_schema() AND t.table_name = $1
			AND t.column_name = $2 AND t.is_identity = 'YES'`, t.Name, numbered)
		if err != nil {
			return nil, err
		}
		if len(sequence) == 0 {
			continue
		}
		last, err := ReadColumn[int64](ctx, read,
			`SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+*sequence[0])
		if err != nil {
			return nil, err
		}
		if last[0] > 0 {
			all[t.Name] = last[0]
		}
	}
	return all, nil
}
