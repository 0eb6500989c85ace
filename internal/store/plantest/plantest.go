// Package plantest checks that statements use the indexes that they were
// written for, on both engines.
package plantest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Shape is a statement, and the index that must serve it.
type Shape struct {
	Name  string
	Index string // the index that the plan must use; several names mean that any of them is good
	Sort  bool   // whether the plan may sort: only if it finds a few rows by their keys
	Text  string
	Args  []any
}

// Insert adds rows to a table in db. A row has values for the first columns of the
// table. Columns that were added later get their defaults.
func Insert(t *testing.T, db *store.DB, table string, rows ...[]any) {
	t.Helper()
	names := columns(t, db, table)[:len(rows[0])]
	err := db.Write(t.Context(), func(x *store.Tx) error {
		return x.InsertRows(t.Context(), `INSERT INTO `+table+` (`+strings.Join(names, ", ")+`)`, rows, ``)
	})
	if err != nil {
		t.Fatalf("%s: %v", table, err)
	}
}

// columns returns the names of a table's columns, in order.
func columns(t *testing.T, db *store.DB, table string) []string {
	t.Helper()
	text := `SELECT name FROM pragma_table_info($1) ORDER BY cid`
	if db.Engine.Postgres {
		text = `SELECT column_name FROM information_schema.columns
			WHERE table_name = $1 AND table_schema = 'public' ORDER BY ordinal_position`
	}
	return rows(t, db, text, []any{table}, 1)
}

// SQLite checks the plans of shapes in a database with rows, before and after
// ANALYZE has collected statistics.
func SQLite(t *testing.T, insert func(*store.DB), shapes func(*store.DB) []Shape) {
	path := filepath.Join(t.TempDir(), "db")
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed %v", analyzed), func(t *testing.T) {
			db := open(t, path)
			if !analyzed {
				insert(db)
			}
			for _, sh := range shapes(db) {
				checkSQLite(t, sh, rows(t, db, "EXPLAIN QUERY PLAN "+sh.Text, sh.Args, 4))
			}
			exec(t, db, "ANALYZE") // connections that are opened after this read the statistics
		})
	}
}

// Postgres checks the plans of shapes in a database with rows.
func Postgres(t *testing.T, insert func(*store.DB), shapes func(*store.DB) []Shape) {
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
	}
	db := open(t, create(t, server))
	insert(db)
	exec(t, db, "ANALYZE")
	for i, sh := range shapes(db) {
		checkPostgres(t, sh, explain(t, db, fmt.Sprintf("p%d", i), sh))
	}
}

// Lookups checks on PostgreSQL that shapes look up rows one by one while the planner has
// no statistics. A table that grows fast has none for a minute.
func Lookups(t *testing.T, shapes func(*store.DB) []Shape) {
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
	}
	db := open(t, create(t, server))
	for i, sh := range shapes(db) {
		plan := explain(t, db, fmt.Sprintf("p%d", i), sh)
		if text := strings.Join(plan, "\n"); strings.Contains(text, "Filter") || !strings.Contains(text, sh.Index) {
			t.Errorf("%s: compares every row:\n%s\n%s", sh.Name, sh.Text, text)
		}
	}
}

// explain returns the plan with which a prepared statement runs, independently of its values.
func explain(t *testing.T, db *store.DB, name string, sh Shape) (plan []string) {
	t.Helper()
	execute := "EXPLAIN (COSTS OFF) EXECUTE " + name
	if n := len(sh.Args); n > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	err := db.Write(t.Context(), func(x *store.Tx) error {
		if _, err := x.Exec(t.Context(), "PREPARE "+name+" AS "+sh.Text); err != nil {
			return err
		}
		var err error
		plan, err = store.ReadColumn[string](t.Context(), x.Rows, execute)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sh.Text, err)
	}
	return plan
}

func checkSQLite(t *testing.T, sh Shape, plan []string) {
	t.Helper()
	text := strings.Join(plan, "\n")
	var wrong []string
	for _, line := range plan {
		fine := strings.Contains(line, "json_each") || line == "SCAN r LEFT-JOIN" || // reads the only role, after t
			slices.Contains(plan, "CO-ROUTINE "+strings.TrimPrefix(line, "SCAN ")) // reads the rows of a subquery
		if strings.HasPrefix(line, "SCAN ") && !fine {
			wrong = append(wrong, "scans a table")
		}
		if strings.Contains(line, "USE TEMP B-TREE") && !sh.Sort {
			wrong = append(wrong, "sorts")
		}
	}
	if !slices.ContainsFunc(strings.Fields(sh.Index), func(name string) bool {
		return strings.Contains(text,
			" "+name+" ")
	}) {
		wrong = append(wrong, "does not use "+sh.Index)
	}
	if len(wrong) > 0 {
		t.Errorf("%s %v:\n%s\n%s", sh.Name, wrong, sh.Text, text)
	}
}

func checkPostgres(t *testing.T, sh Shape, plan []string) {
	t.Helper()
	text := strings.Join(plan, "\n")
	var wrong []string
	if strings.Contains(text, "Seq Scan") {
		wrong = append(wrong, "scans a table")
	}
	if strings.Contains(text, "Sort Key") && !strings.Contains(text, "Presorted Key: name") && !sh.Sort {
		wrong = append(wrong, "sorts")
	}
	if !slices.ContainsFunc(strings.Fields(sh.Index), func(name string) bool {
		return strings.Contains(text, " "+name+" ") || strings.Contains(text, " "+name+"\n")
	}) {
		wrong = append(wrong, "does not use "+sh.Index)
	}
	if len(wrong) > 0 {
		t.Errorf("%s %v:\n%s\n%s", sh.Name, wrong, sh.Text, text)
	}
}

// rows runs a query with n columns and returns the last column of each row.
func rows(t *testing.T, db *store.DB, query string, args []any, n int) (all []string) {
	t.Helper()
	err := db.Rows(t.Context(), query, args, func(row store.Scanner) (bool, error) {
		var text string
		into := make([]any, n)
		for i := range into {
			into[i] = new(int)
		}
		into[n-1] = &text
		err := row.Scan(into...)
		all = append(all, text)
		return false, err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

func exec(t *testing.T, db *store.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func open(t *testing.T, url string) *store.DB {
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

// create creates a database on a server and drops it after the test. It cannot
// use storetest, because storetest imports the domain packages, whose own tests
// use this package.
func create(t *testing.T, server string) string {
	t.Helper()
	on, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("plan%d_%d", os.Getpid(), len(t.Name()))
	if _, err := on.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		defer on.Close(ctx)
		if _, err := on.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
