package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// A shape is a statement of the list engine, and the index that must serve it.
type shape struct {
	name  string
	index string // the one to walk; more than one where either is as good
	sort  bool   // may it sort? a few rows, found by their keys
	text  string
	args  []any
}

// A tree is what the shapes are asked of: one folder of each depth, 1 to 4, and
// a provider and a repo in each.
type tree struct{ folders, providers, repos []resource.UID }

// query starts a statement over a kind.
func (tr tree) query(e engine, kind, col string, p page.Request) query {
	q := query{engine: e, table: kind, col: col, p: p}
	switch kind {
	case "groups":
		q.columns, q.joins = groups.columns, groups.joins
	case "identities":
		q.columns, q.joins = identities.columns, identities.joins
	case "role_bindings":
		q.columns, q.joins = bindings.columns, bindings.joins
	case "identity_providers":
		q.columns, q.joins = providers.columns, providers.joins
	case "account_associations":
		q.columns, q.joins = associations.columns, associations.joins
	case "group_invites":
		q.columns, q.joins = invites.columns, invites.joins
	case "external_group_role_mappings":
		q.columns, q.joins = mappings.columns, mappings.joins
	case "repos":
		q.columns = repos.columns
	case "tags":
		q.columns, q.classes = tags.columns, []resource.TagClass{resource.PlainTag}
	case "pulls":
		q.columns = pulls.columns
	case "subscriptions":
		q.columns, q.joins = subscriptions.columns, subscriptions.joins
	}
	return q
}

// planned are the kinds with lists, and whether they have names.
var planned = map[string]bool{
	"groups": true, "identities": true, "role_bindings": false,
	"identity_providers": true, "account_associations": true, "group_invites": false, "external_group_role_mappings": false,
	"repos": true, "tags": true, "pulls": false,
	"subscriptions": false,
}

// requests are the pages a list can be asked for.
func (tr tree) requests() map[string]page.Request {
	at := &page.Cursor{Key: "g5", Number: 5, UID: string(tr.folders[3]) + "/8000000000000000"}
	return map[string]page.Request{
		"first page":        {Size: 50},
		"last page":         {Size: 50, Order: page.Order{Desc: true}},
		"at a cursor":       {Size: 50, After: at},
		"back from there":   {Size: 50, After: at, Order: page.Order{Desc: true}},
		"skipping":          {Size: 50, Skip: 1000},
		"skipping backward": {Size: 200, Skip: 1000, Order: page.Order{Desc: true}},
	}
}

var suffix = map[string]string{"name": "name", "create_ms": "create", "seg": "seg"}

func (tr tree) shapes(e engine) (all []shape) {
	add := func(q query, name, index string, sort bool, text func(*query) string) {
		t := text(&q)
		all = append(all, shape{name, index, sort, t, q.args})
	}
	for ask, p := range tr.requests() {
		for kind, named := range planned {
			for _, col := range []string{"name", "create_ms", "uid"} {
				if col == "name" && !named || col == "create_ms" && kind == "tags" {
					continue
				}
				for d := 1; d <= 3; d++ {
					index := fmt.Sprintf("%s_a%d_%s", kind, d, suffix[col])
					if col == "uid" {
						index = kind + "_uid"
					}
					sp := span{below: tr.folders[d-1]}
					name := fmt.Sprintf("%s below level %d by %s, %s", kind, d, col, ask)
					add(tr.query(e, kind, col, p), name, index, p.Skip > 0, func(q *query) string { return q.page(sp) })
				}
				if col == "uid" {
					col = "seg"
				}
				sp := span{children: tr.folders[2]}
				switch kind {
				case "external_group_role_mappings":
					sp.children = tr.providers[2]
				case "tags", "pulls":
					sp.children = tr.repos[2]
				}
				add(tr.query(e, kind, col, p), fmt.Sprintf("%s in a group by %s, %s", kind, col, ask), kind+"_parent_"+suffix[col], p.Skip > 0,
					func(q *query) string { return q.page(sp) })
			}
		}
		tr.filtered(e, ask, p, add)
	}
	tr.several(e, add)
	return all
}

// filtered are the shapes of lists with filters.
func (tr tree) filtered(e engine, ask string, p page.Request, add func(query, string, string, bool, func(*query) string)) {
	for _, col := range []string{"name", "create_ms", "uid"} {
		q := tr.query(e, "groups", col, p)
		q.name = "g77"
		for d := 1; d <= 4; d++ {
			sp := span{below: tr.folders[d-1]}
			index := fmt.Sprintf("groups_a%d_name", min(d, 3))
			if d == 4 { // small, and so either will do
				index += " groups_uid"
			}
			add(q, fmt.Sprintf("exact name below level %d by %s, %s", d, col, ask), index, true, func(q *query) string { return q.page(sp) })
			add(q, fmt.Sprintf("exact name below level %d, counted", d), index, false, func(q *query) string { return q.total(sp) })
		}
		sp := span{children: tr.folders[2]}
		add(q, "exact name in a group by "+col+", "+ask, "groups_parent_name", true, func(q *query) string { return q.page(sp) })
	}
	for kind, c := range map[string]condition{
		"role_bindings_identity": {column: "identity", value: "x"}, "role_bindings_role": {column: "role", value: int64(5)},
		"identities_relationship": {column: "relationship", value: int64(1)}, "group_invites_key": {column: "key_id", value: "k"},
		"tags_deprecated": {column: "deprecated", flag: true},
		"tags_digest":     {column: "digest", value: "d"}, "pulls_digest": {column: "digest", value: "d"}, "pulls_identity": {column: "identity", value: "i"},
	} {
		table := strings.TrimSuffix(kind, "_"+strings.TrimSuffix(c.column, "_id"))
		for d := 1; d <= 4; d++ {
			q := tr.query(e, table, "uid", p)
			q.where = []condition{c}
			sp := span{below: tr.folders[d-1]}
			add(q, fmt.Sprintf("%s by %s below level %d, %s", table, c.column, d, ask), kind, p.Skip > 0, func(q *query) string { return q.page(sp) })
			add(q, fmt.Sprintf("%s by %s below level %d, counted", table, c.column, d), kind, false, func(q *query) string { return q.total(sp) })
		}
	}
}

// several are the shapes of lists over many grants, and of counters.
func (tr tree) several(e engine, add func(query, string, string, bool, func(*query) string)) {
	var many []span
	for i := range 60 {
		many = append(many, span{below: tr.folders[1] + resource.UID(fmt.Sprintf("/%016x", i))})
	}
	for _, n := range []int{2, 10, 60} {
		for ask, p := range tr.requests() {
			for _, col := range []string{"name", "create_ms", "uid"} {
				q := tr.query(e, "groups", col, p)
				index := "groups_a3_" + suffix[col]
				if col == "uid" {
					index = "groups_uid"
				}
				name := fmt.Sprintf("%d grants by %s, %s", n, col, ask)
				if e.shared {
					add(q, name, index, true, func(q *query) string { return q.lateral(many[:n]) })
				} else {
					add(q, name, index, false, func(q *query) string { return q.keys(many[0], q.need()) })
				}
			}
		}
		add(tr.query(e, "groups", "name", page.Request{}), fmt.Sprintf("counters of %d grants", n), "counters_pkey PRIMARY", false,
			func(q *query) string { return q.counters(many[:n]) })
	}
	set := span{set: []resource.UID{tr.folders[0], tr.folders[1]}}
	add(tr.query(e, "groups", "name", page.Request{Size: 50}), "rows by their uids", "groups_uid", true, func(q *query) string { return q.page(set) })
	if !e.shared {
		add(tr.query(e, "groups", "name", page.Request{Size: 50}), "rows by their segments", "PRIMARY", true, func(q *query) string { return q.fetch([]int64{1, 2}) })
	}
}

// needed are the shapes of a push that asks for what its manifest needs. For one
// blob PostgreSQL may take either index while it knows of none.
func needed(tr tree) (all []shape) {
	for _, n := range []int{1, 3, 64} {
		blobs := "repo_blobs_pkey sqlite_autoindex_repo_blobs_1"
		if n == 1 {
			blobs += " repo_blobs_digest"
		}
		for table, index := range map[string]string{"repo_blobs": blobs, "manifests": "manifests_pkey manifests_digest sqlite_autoindex_manifests_1"} {
			text, args := heldIn(table, tr.repos[0], slices.Repeat([]string{"d"}, n))
			all = append(all, shape{name: fmt.Sprintf("%d of %s", n, table), index: index, text: text, args: args})
		}
	}
	return all
}

// plant loads n of each kind below folders of depth 1 to 4.
func plant(n int, row func(table string, values []any)) tree {
	var tr tree
	uid := resource.NewRoot()
	role := resource.NewRoot() // a small table tempts a planner to start with it
	row("roles", append(place(role), "role", "", "[]", 0, 0))
	for d := 1; d <= 4; d++ {
		tr.folders = append(tr.folders, uid)
		row("groups", append(place(uid), fmt.Sprintf("folder %d", d), "", false, 0, 0, 0))
		tr.providers = append(tr.providers, uid.NewChild())
		row("identity_providers", append(place(tr.providers[d-1]), "provider", "", segment(role), "{}", []byte{}, 0, 0, false, "", 0, false))
		tr.repos = append(tr.repos, uid.NewChild())
		row("repos", append(place(tr.repos[d-1]), "repo", "", "{}", "", 0, 0))
		uid = uid.NewChild()
	}
	for i := range n {
		parent := tr.folders[i%4]
		g, p := parent.NewChild(), parent.NewChild()
		row("groups", append(place(g), fmt.Sprintf("g%d", i), "", false, 0, i, i))
		row("identities", append(place(p), fmt.Sprintf("i%d", i/2), "", "", "", "", i%4, "{}", "", "", "", 0, i, i, nil, ""))
		row("role_bindings", append(place(parent.NewChild()), string(p), segment(role), i))
		row("identity_providers", append(place(parent.NewChild()), fmt.Sprintf("p%d", i), "", segment(role), "{}", []byte{}, i, i, false, "", 0, false))
		row("account_associations", append(place(g), fmt.Sprintf("a%d", i), "", "{}", i, i))
		row("group_invites", append(place(parent.NewChild()), segment(role), "", false, fmt.Sprintf("k%d", i), []byte{}, 0, i))
		row("subscriptions", append(place(parent.NewChild()), "https://sink.test", 0, i))
		row("external_group_role_mappings", append(place(tr.providers[i%4].NewChild()), fmt.Sprintf("m%d", i), segment(role), string(uid), i))
		row("repos", append(place(parent.NewChild()), fmt.Sprintf("r%d", i), "", "{}", "", i, i))
		digest := fmt.Sprintf("d%d", i/8)
		if i%8 < 4 { // every other tag has a manifest of its own
			row("manifests", []any{segment(tr.repos[i%4]), digest, "", 0, "", "", "", 0, []byte{}})
		}
		row("tags", append(place(tr.repos[i%4].NewChild()), fmt.Sprintf("t%d", i), digest, i%8/7, i%50 == 0, "", i, i))
		row("pulls", append(place(tr.repos[i%4].NewChild()), false, fmt.Sprintf("d%d", i/2), "", fmt.Sprintf("i%d", i/2), "", "", i, 0))
		row("accounts", append(place(parent.NewChild()), fmt.Sprintf("e%d", i), "", string(p), "", []byte{}, 0, []byte{}, 0, false, 0, i, i, ""))
		if i%10 == 0 {
			row("counters", []any{"groups", segment(g), 0, 0, 0})
		}
	}
	return tr
}

func TestPlansOfSQLite(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	var tr tree
	err = s.write(t.Context(), func(x *tx) (err error) {
		tr = plant(2000, func(table string, values []any) {
			marks := strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")
			if _, e := x.exec(t.Context(), `INSERT INTO `+table+` VALUES (`+marks+`)`, values...); e != nil && err == nil {
				err = fmt.Errorf("%s: %w", table, e)
			}
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(sh shape) (plan []string) {
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
		return plan
	}
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed %v", analyzed), func(t *testing.T) {
			if analyzed {
				s.Tamper(t, "ANALYZE")
				if err := s.stmts.close(); err != nil {
					t.Fatal(err)
				}
				s.read.SetMaxIdleConns(0) // only new connections read the statistics
				s.read.SetMaxIdleConns(sqliteReaders)
			}
			for _, sh := range append(tr.shapes(s.engine), needed(tr)...) {
				checkSQLite(t, sh, read(sh))
			}
		})
	}
}

func checkSQLite(t *testing.T, sh shape, plan []string) {
	t.Helper()
	text := strings.Join(plan, "\n")
	var wrong []string
	for _, line := range plan {
		fine := strings.Contains(line, "json_each") || line == "SCAN r LEFT-JOIN" // the one role there is, after t
		if strings.HasPrefix(line, "SCAN ") && !fine {
			wrong = append(wrong, "scans a table")
		}
		if strings.Contains(line, "USE TEMP B-TREE") && !sh.sort {
			wrong = append(wrong, "sorts")
		}
	}
	if !slices.ContainsFunc(strings.Fields(sh.index), func(name string) bool { return strings.Contains(text, " "+name+" ") }) {
		wrong = append(wrong, "does not use "+sh.index)
	}
	if len(wrong) > 0 {
		t.Errorf("%s %v:\n%s\n%s", sh.name, wrong, sh.text, text)
	}
}

// columnsIn returns the columns of a table in their order.
func columnsIn(t *testing.T, s *Store, table string) (all []string) {
	t.Helper()
	err := s.rows(t.Context(), `SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = 'public' ORDER BY ordinal_position`,
		[]any{table}, func(row scanner) (bool, error) {
			var name string
			err := row.Scan(&name)
			all = append(all, name)
			return false, err
		})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPlansOfPostgres(t *testing.T) {
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
	}
	s := openFresh(t, server)
	tables := map[string][][]any{}
	tr := plant(30_000, func(table string, values []any) { tables[table] = append(tables[table], values) })
	on, err := s.read.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	err = on.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn()
		inserted := slices.Insert(slices.Clone(kinds), slices.Index(kinds, "tags"), "manifests")
		for _, table := range append([]string{"counters"}, inserted...) {
			if _, err := pg.CopyFrom(t.Context(), pgx.Identifier{table}, columnsIn(t, s, table), pgx.CopyFromRows(tables[table])); err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		}
		_, err := pg.Exec(t.Context(), "ANALYZE")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shapes := append(tr.shapes(s.engine), needed(tr)...)
	for _, reference := range []string{"v1", "sha256:1"} {
		text, args := manifestOf(resource.NewRoot().NewChild(), reference, true)
		shapes = append(shapes, shape{name: "a pull of " + reference, index: "manifests_pkey manifests_digest", text: text, args: args})
	}
	for _, sh := range shapes {
		checkPostgres(t, sh, explain(t, on, sh))
	}
}

// explain returns the plan a prepared statement is run with, whatever its
// values.
func explain(t *testing.T, on *sql.Conn, sh shape) (plan []string) {
	t.Helper()
	err := on.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn().PgConn()
		execute := "EXECUTE p"
		if n := len(sh.args); n > 0 {
			execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
		}
		results, err := pg.Exec(t.Context(), "PREPARE p AS "+sh.text+"; EXPLAIN (COSTS OFF) "+execute+"; DEALLOCATE p").ReadAll()
		if err != nil {
			return err
		}
		for _, row := range results[1].Rows {
			plan = append(plan, string(row[0]))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", sh.text, err)
	}
	return plan
}

func checkPostgres(t *testing.T, sh shape, plan []string) {
	t.Helper()
	text := strings.Join(plan, "\n")
	var wrong []string
	if strings.Contains(text, "Seq Scan") {
		wrong = append(wrong, "scans a table")
	}
	if strings.Contains(text, "Sort Key") && !strings.Contains(text, "Presorted Key: name") && !sh.sort {
		wrong = append(wrong, "sorts")
	}
	if !slices.ContainsFunc(strings.Fields(sh.index), func(name string) bool {
		return strings.Contains(text, " "+name+" ") || strings.Contains(text, " "+name+"\n")
	}) {
		wrong = append(wrong, "does not use "+sh.index)
	}
	if len(wrong) > 0 {
		t.Errorf("%s %v:\n%s\n%s", sh.name, wrong, sh.text, text)
	}
}

// openFresh opens a store in a database of its own. (storetest cannot be used:
// it imports this package.)
func openFresh(t *testing.T, server string) *Store {
	t.Helper()
	admin, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("plan%d", os.Getpid())
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		admin.Close()
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	s, err := Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
