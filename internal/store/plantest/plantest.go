// Package plantest checks that statements are served by the indexes they were
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
	Index string // the one to walk; more than one where either is as good
	Sort  bool   // may it sort? a few rows, found by their keys
	Text  string
	Args  []any
}

// Insert adds rows to a table of db. A row has the first columns of the table; the
// others, which came later, have their defaults.
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

// columns returns the names of the columns of a table in their order.
func columns(t *testing.T, db *store.DB, table string) []string {
	t.Helper()
	text := `SELECT name FROM pragma_table_info($1) ORDER BY cid`
	if db.Engine.Postgres {
		text = `SELECT column_name FROM information_schema.columns
			WHERE table_name = $1 AND table_schema = 'public' ORDER BY ordinal_position`
	}
	return rows(t, db, text, []any{table}, 1)
}

// SQLite checks shapes against a database with rows, before and after the
// statistics of the rows are known.
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
			exec(t, db, "ANALYZE") // connections that are opened later read the statistics
		})
	}
}

// Postgres checks shapes against a database with rows.
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

// Lookups checks on PostgreSQL that shapes look rows up one by one, while the planner has
// no statistics: for a minute it has none of a table that grows fast.
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

// explain returns the plan a prepared statement is run with, whatever its values.
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
		fine := strings.Contains(line, "json_each") || line == "SCAN r LEFT-JOIN" // the one role there is, after t
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

// rows returns the last of n columns of the rows of a query.
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

// create makes a database at a server until the test ends. (storetest cannot be
// used: it imports the domains, whose own tests use this package.)
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
