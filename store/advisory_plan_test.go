package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// advisoryShapes are the statements of lists of advisories.
func advisoryShapes(s *Store, groups []resource.UID) (all []shape) {
	add := func(name, index string, sort bool, text func(*query) string) {
		q := query{engine: s.engine}
		t := text(&q)
		all = append(all, shape{name, index, sort, t, q.args})
	}
	for _, in := range []lanes{{table: "advisories", column: "parent"}, {table: "advisories", column: "shelf"}, {table: "advisory_names", column: "key"}} {
		for i, g := range groups {
			in.all = append(in.all, lane{key: int64(i), group: g})
		}
		for _, by := range []order{byUID, byCreation, byUpdate} {
			index := in.table + "_" + in.column + "_seg"
			switch {
			case in.table == "advisory_names" && by == byUpdate:
				index = "advisory_names_update"
			case in.table == "advisory_names" && s.engine.shared:
				index = "advisory_names_pkey"
			case in.table == "advisory_names":
				index = "PRIMARY" // the table is its own index
			case by == byUpdate:
				index = in.table + "_" + in.column + "_update"
			}
			for _, p := range []page.Request{
				{Size: 50}, {Size: 50, Order: page.Order{Desc: true}},
				{Size: 50, After: &page.Cursor{Number: 5, UID: string(groups[0]) + "/8000000000000000"}},
				{Size: 50, After: &page.Cursor{Number: 5, UID: string(groups[0]) + "/8000000000000000"}, Order: page.Order{Desc: true}},
			} {
				l := &advisoryList{s: s, by: by, p: p, groups: groups}
				name := fmt.Sprintf("%s by %s in order %d, %+v", in.table, in.column, by, p)
				add(name, index, false, func(q *query) string { return l.first(q, in, in.all[0], 51) })
				if s.engine.shared {
					add(name+", of several", index, true, func(q *query) string { return l.firsts(q, in, 51) })
				}
			}
		}
	}
	return all
}

// plantAdvisories makes two groups with advisories.
func plantAdvisories(t *testing.T, s *Store) (groups []resource.UID) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: now, UpdateTime: now}
	folder := resource.Group{UID: org.UID.NewChild(), Name: "folder", CreateTime: now, UpdateTime: now}
	for _, g := range []resource.Group{org, folder} {
		if _, err := s.InsertGroup(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		var batch []resource.Advisory
		for i := range 3000 {
			batch = append(batch, resource.Advisory{
				ID: fmt.Sprint("A-", i), ArtifactName: fmt.Sprint("p", i%100), ArtifactType: fmt.Sprint("t", i%5), Aliases: []string{fmt.Sprint("CVE-", i)},
				Source: resource.AdvisorySource{Digest: []byte("1")},
			})
		}
		if _, err := s.ImportAdvisories(t.Context(), g.UID, "", batch); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g.UID)
	}
	return groups
}

func TestAdvisoryPlansOfSQLite(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	groups := plantAdvisories(t, s)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			s.Tamper(t, "ANALYZE")
			if err := s.stmts.close(); err != nil {
				t.Fatal(err)
			}
			s.read.SetMaxIdleConns(0) // only new connections read the statistics
			s.read.SetMaxIdleConns(sqliteReaders)
		}
		for _, sh := range advisoryShapes(s, groups) {
			var plan []string
			err := s.rows(t.Context(), "EXPLAIN QUERY PLAN "+sh.text, sh.args, func(row scanner) (bool, error) {
				var a, b, c int
				var text string
				err := row.Scan(&a, &b, &c, &text)
				plan = append(plan, text)
				return false, err
			})
			if err != nil {
				t.Fatalf("%s: %v", sh.text, err)
			}
			checkSQLite(t, sh, plan)
			if text := strings.Join(plan, "\n"); !strings.Contains(sh.text, "update_ms") && !strings.Contains(text, "rowid>?") && !strings.Contains(text, "seg>?") {
				t.Errorf("%s does not seek to its place:\n%s\n%s", sh.name, sh.text, text)
			}
		}
	}
}

func TestAdvisoryPlansOfPostgres(t *testing.T) {
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
	}
	s := openFresh(t, server)
	groups := plantAdvisories(t, s)
	on, err := s.read.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	if _, err := on.ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	for _, sh := range advisoryShapes(s, groups) {
		checkPostgres(t, sh, explain(t, on, sh))
	}
}
