package advisorydb

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// advisoryShapes returns the SQL statements that list advisories.
func advisoryShapes(s *Store, groups []resource.UID) (shapes []plantest.Shape) {
	add := func(name, index string, sort bool, text func(*store.Query) string) {
		q := store.Query{Engine: s.Engine}
		t := text(&q)
		shapes = append(shapes, plantest.Shape{Name: name, Index: index, Sort: sort, Text: t, Args: q.Args})
	}
	cursor := &page.Cursor{Number: 5, UID: string(groups[0]) + "/8000000000000000"}
	for _, in := range []indexRanges{
		{table: "advisories", column: "parent"}, {table: "advisories", column: "partition_id"},
		{table: "advisory_names", column: "key"},
	} {
		for i, g := range groups {
			in.ranges = append(in.ranges, indexRange{key: int64(i), group: g})
		}
		for _, by := range []order{byUID, byCreation, byUpdate} {
			index := in.table + "_" + in.column + "_seg"
			switch {
			case in.table == "advisory_names" && by == byUpdate:
				index = "advisory_names_update"
			case in.table == "advisory_names" && s.Engine.Postgres:
				index = "advisory_names_pkey"
			case in.table == "advisory_names":
				index = "PRIMARY" // SQLite's name for the primary key of a table without row IDs
			case by == byUpdate:
				index = in.table + "_" + in.column + "_update"
			}
			for _, p := range []page.Request{
				{Size: 50}, {Size: 50, Order: page.Order{Desc: true}},
				{Size: 50, After: cursor}, {Size: 50, After: cursor, Order: page.Order{Desc: true}},
			} {
				l := &advisoryList{s: s, by: by, p: p, groups: groups}
				name := fmt.Sprintf("%s by %s in order %d, %+v", in.table, in.column, by, p)
				add(name, index, false, func(q *store.Query) string { return l.rangeQuery(q, in, in.ranges[0], 51) })
				if s.Engine.Postgres {
					add(name+", of several", index, true, func(q *store.Query) string { return l.rangesQuery(q, in, 51) })
				}
			}
		}
	}
	return shapes
}

// exploitShapes returns the statements that read lists of exploited vulnerabilities.
func exploitShapes(s *Store, groups []resource.UID) []plantest.Shape {
	chunks := "exploit_chunks_pkey"
	if !s.Engine.Postgres {
		chunks = "sqlite_autoindex_exploit_chunks_1"
	}
	lists, entries := store.Query{Engine: s.Engine}, store.Query{Engine: s.Engine}
	listsText := exploitListsQuery(&lists, groups)
	entriesText := exploitChunksQuery(&entries, vuln.EPSS, []int64{store.Segment(groups[0])}, []int64{1, 2})
	return []plantest.Shape{
		{Name: "lists in reach", Index: "exploit_lists_uid", Text: listsText, Args: lists.Args},
		{Name: "entries of lists", Index: chunks, Text: entriesText, Args: entries.Args},
	}
}

// insertAdvisories creates two groups with advisories and exploit lists.
func insertAdvisories(t *testing.T, db *store.DB) (groups []resource.UID) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: now, UpdateTime: now}
	folder := resource.Group{UID: org.UID.NewChild(), Name: "folder", CreateTime: now, UpdateTime: now}
	for _, g := range []resource.Group{org, folder} {
		if _, err := iamdb.New(db).InsertGroup(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		var batch []vuln.Advisory
		for i := range 3000 {
			batch = append(batch, vuln.Advisory{
				ID: fmt.Sprint("A-", i), ArtifactName: fmt.Sprint("p", i%100), ArtifactType: fmt.Sprint("t", i%5),
				Aliases: []string{fmt.Sprint("CVE-", i)}, Source: vuln.AdvisorySource{Digest: []byte("1")},
			})
		}
		if _, err := New(db).ImportAdvisories(t.Context(), g.UID, "", batch); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g.UID)
		var scores []vuln.Exploit
		for i := range 3000 {
			scores = append(scores, vuln.Exploit{CVE: vuln.CVE(2020_000000000 + 100*i)})
		}
		list := vuln.ExploitList{Group: g.UID, Format: vuln.EPSS, Time: now}
		if _, err := New(db).ReplaceExploits(t.Context(), list, scores); err != nil {
			t.Fatal(err)
		}
	}
	insertLists(t, db)
	return groups
}

// insertLists creates other organizations with exploit lists and changes of advisories.
func insertLists(t *testing.T, db *store.DB) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range 100 {
		g := resource.Group{UID: resource.NewRoot(), Name: fmt.Sprint("other-", i), CreateTime: now, UpdateTime: now}
		if _, err := iamdb.New(db).InsertGroup(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if _, err := New(db).ReplaceExploits(t.Context(), vuln.ExploitList{Group: g.UID, Format: vuln.EPSS, Time: now},
			[]vuln.Exploit{{CVE: 2020_000000001}}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `INSERT INTO advisory_changes (root, advisory) VALUES ($1, $2)`,
			store.Segment(g.UID), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAdvisoryPlans(t *testing.T) {
	var groups []resource.UID
	insert := func(db *store.DB) { groups = insertAdvisories(t, db) }
	due := plantest.Shape{Name: "feed that is due", Index: "advisory_feeds_due",
		Text: oldestDueQuery, Args: []any{int64(1)}}
	changes := plantest.Shape{Name: "changes to compare", Index: "advisory_changes_root", Sort: true,
		Text: nextChangesQuery, Args: []any{int64(1), 500}}
	shapes := func(db *store.DB) []plantest.Shape {
		return append(append(advisoryShapes(New(db), groups), exploitShapes(New(db), groups)...), due, changes)
	}
	t.Run("sqlite", func(t *testing.T) { plantest.SQLite(t, insert, shapes) })
	t.Run("postgres", func(t *testing.T) { plantest.Postgres(t, insert, shapes) })
}

func TestLookups(t *testing.T) {
	plantest.Lookups(t, func(db *store.DB) []plantest.Shape {
		text, args := withIDs(db.Engine, `t.seg`, "1", []string{"CVE-1"})
		return []plantest.Shape{{Name: "by ID", Index: "advisories_id", Text: text, Args: args}}
	})
}

// TestAdvisoryPlansSeek checks that on SQLite a list in an order by segment seeks to the first segment of the page.
func TestAdvisoryPlansSeek(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, sh := range advisoryShapes(New(db), insertAdvisories(t, db)) {
		plan := ""
		err := db.Rows(t.Context(), "EXPLAIN QUERY PLAN "+sh.Text, sh.Args, func(row store.Scanner) (bool, error) {
			var a, b, c int
			var text string
			err := row.Scan(&a, &b, &c, &text)
			plan += text + "\n"
			return false, err
		})
		if err != nil {
			t.Fatalf("%s: %v", sh.Text, err)
		}
		seeks := strings.Contains(plan, "rowid>?") || strings.Contains(plan, "seg>?")
		if !strings.Contains(sh.Text, "update_ms") && !seeks {
			t.Errorf("%s does not seek to its first segment:\n%s\n%s", sh.Name, sh.Text, plan)
		}
	}
}
