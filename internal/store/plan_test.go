package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A tree contains the resources that the statements select: one folder at each
// depth from 1 to 4, and a provider and a repo in each folder.
type tree struct{ folders, providers, repos []resource.UID }

// query returns a query for a list of a kind.
func (tr tree) query(e engine.Engine, kind, col string, p page.Request) store.Query {
	q := store.Query{Engine: e, Table: kind, Column: col, Page: p}
	for _, k := range slices.Concat(iamdb.Kinds(), budgetdb.Kinds(), registrydb.Kinds(), sourcedb.Kinds(),
		signerdb.Kinds(), eventdb.Kinds(), findingdb.Kinds()) {
		if k.Table == kind {
			q.Columns = k.Columns
			q.SetJoins(k.Joins)
		}
	}
	if kind == "tags" {
		q.SetClasses(resource.PlainTag)
	}
	return q
}

// planned contains the kinds that have lists, and whether their resources have names.
var planned = map[string]bool{
	"groups": true, "identities": true, "role_bindings": false,
	"identity_providers": true, "account_associations": true, "group_invites": false,
	"external_group_role_mappings": false,
	"repos":                        true, "tags": true, "pulls": false,
	"subscriptions": false, "budgets": false, "exceptions": false, "pull_rules": false, "trash": false,
	"access_rules":  false,
	"role_requests": false, "signers": true, "replications": true,
}

// requests returns the page requests that a list can get.
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

func (tr tree) shapes(e engine.Engine) (all []plantest.Shape) {
	add := func(q store.Query, name, index string, sort bool, text func(*store.Query) string) {
		t := text(&q)
		all = append(all, plantest.Shape{Name: name, Index: index, Sort: sort, Text: t, Args: q.Args})
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
					sp := store.Below(tr.folders[d-1])
					name := fmt.Sprintf("%s below level %d by %s, %s", kind, d, col, ask)
					add(tr.query(e, kind, col, p), name, index, p.Skip > 0, func(q *store.Query) string { return q.PlanPage(sp) })
				}
				if col == "uid" {
					col = "seg"
				}
				sp := store.ChildrenOf(tr.folders[2])
				switch kind {
				case "external_group_role_mappings":
					sp = store.ChildrenOf(tr.providers[2])
				case "tags", "pulls", "trash":
					sp = store.ChildrenOf(tr.repos[2])
				}
				add(tr.query(e, kind, col, p), fmt.Sprintf("%s in a group by %s, %s", kind, col, ask),
					kind+"_parent_"+suffix[col], p.Skip > 0,
					func(q *store.Query) string { return q.PlanPage(sp) })
			}
		}
		tr.filtered(e, ask, p, add)
	}
	tr.several(e, add)
	tr.searched(e, add)
	for table, index := range map[string]string{ // tables in which FindByPath looks up the last name of a path
		"groups": "groups_parent_name", "identities": "identities_parent_name", "repos": "repos_parent_name",
		"identity_providers": "identity_providers_parent_name",
	} {
		args, text := store.Named(table, []string{"folder 1", "folder 2", "folder 3", "g77"}, 20)
		all = append(all, plantest.Shape{Name: table + " at a path", Index: index, Sort: true, Text: text, Args: args})
	}
	for _, table := range []string{"groups", "identities", "repos", "identity_providers"} {
		args, text := store.NamesOf(e, table, false, tr.folders)
		all = append(all, plantest.Shape{Name: table + " by uids", Index: table + "_uid", Text: text, Args: args})
	}
	args, text := store.Named("groups", []string{"folder 1"}, 20)
	return append(all, plantest.Shape{
		Name: "an organization at a path", Index: "groups_root_name groups_parent_name", Sort: true, Text: text, Args: args,
	})
}

// filtered adds the shapes of lists with filters.
func (tr tree) filtered(e engine.Engine, ask string, p page.Request,
	add func(store.Query, string, string, bool, func(*store.Query) string)) {
	for _, col := range []string{"name", "create_ms", "uid"} {
		q := tr.query(e, "groups", col, p)
		q.SetName("g77")
		for d := 1; d <= 4; d++ {
			sp := store.Below(tr.folders[d-1])
			index := fmt.Sprintf("groups_a%d_name", min(d, 3))
			if d == 4 { // this subtree is small, so either index is good
				index += " groups_uid"
			}
			add(q, fmt.Sprintf("exact name below level %d by %s, %s", d, col, ask), index, true, func(q *store.Query) string {
				return q.PlanPage(sp)
			})
			add(q, fmt.Sprintf("exact name below level %d, counted", d), index, false, func(q *store.Query) string {
				return q.PlanTotal(sp)
			})
		}
		sp := store.ChildrenOf(tr.folders[2])
		add(q, "exact name in a group by "+col+", "+ask, "groups_parent_name", true, func(q *store.Query) string {
			return q.PlanPage(sp)
		})
	}
	for kind, c := range map[string]store.TestCondition{
		"role_bindings_identity": {Column: "identity", Value: "x"}, "role_bindings_role": {Column: "role", Value: int64(5)},
		"identities_relationship": {Column: "relationship", Value: int64(1)}, "group_invites_key": {Column: "key_id",
			Value: "k"},
		"tags_deprecated": {Column: "deprecated", Flag: true},
		"tags_digest":     {Column: "digest", Value: "d"}, "pulls_digest": {Column: "digest",
			Value: "d"}, "pulls_identity": {Column: "identity", Value: "i"},
	} {
		table := strings.TrimSuffix(kind, "_"+strings.TrimSuffix(c.Column, "_id"))
		for d := 1; d <= 4; d++ {
			q := tr.query(e, table, "uid", p)
			q.SetWhere(c)
			sp := store.Below(tr.folders[d-1])
			add(q, fmt.Sprintf("%s by %s below level %d, %s", table, c.Column, d, ask), kind, p.Skip > 0,
				func(q *store.Query) string {
					return q.PlanPage(sp)
				})
			add(q, fmt.Sprintf("%s by %s below level %d, counted", table, c.Column, d), kind, false,
				func(q *store.Query) string {
					return q.PlanTotal(sp)
				})
		}
	}
}

// searched adds the shapes of searches by name, of counts, and of the events that a request caused.
func (tr tree) searched(e engine.Engine, add func(store.Query, string, string, bool, func(*store.Query) string)) {
	for _, kind := range []string{"groups", "repos", "identities", "accounts", "identity_providers",
		"account_associations", "advisory_feeds", "tags"} {
		q := store.PlanSearch(e, store.NameSearch{Table: kind, Text: "g7", Exact: kind == "tags", Limit: 5})
		for d := 1; d <= 3; d++ {
			sp, index := store.Below(tr.folders[d-1]), fmt.Sprintf("%s_a%d_name", kind, d)
			add(q, fmt.Sprintf("search of %s below level %d", kind, d), index, false, func(q *store.Query) string {
				return q.PlanPage(sp)
			})
			if !e.Postgres {
				add(q, fmt.Sprintf("search of %s below level %d, keys", kind, d), index, false, func(q *store.Query) string {
					return q.PlanKeys(sp, 6)
				})
			}
		}
		if kind != "tags" { // this subtree is small, so either index is good
			deep, index := store.Below(tr.folders[3]), kind+"_a3_name "+kind+"_uid"
			add(q, "search of "+kind+" below level 4", index, true, func(q *store.Query) string { return q.PlanPage(deep) })
		}
		if kind == "groups" || kind == "repos" {
			in := store.ChildrenOf(tr.folders[2])
			add(q, "search of "+kind+" in a group", kind+"_parent_name", true, func(q *store.Query) string {
				return q.PlanPage(in)
			})
		}
	}
	var many []store.Span
	for i := range 60 {
		many = append(many, store.Below(tr.folders[1]+resource.UID(fmt.Sprintf("/%016x", i))))
	}
	if q := store.PlanSearch(e, store.NameSearch{Table: "groups", Text: "g7", Limit: 5}); e.Postgres {
		add(q, "search of groups with 60 grants", "groups_a3_name", true, func(q *store.Query) string {
			return q.PlanLateral(many)
		})
	} else {
		add(q, "first groups of 60 grants", "groups_a3_name", false, func(q *store.Query) string { return q.PlanHeads(many) })
	}
	add(store.Query{}, "counts of groups", "counters_pkey PRIMARY", false, func(q *store.Query) (text string) {
		q.Args, text = store.Counts(e, []string{"groups", "repos"}, tr.folders)
		return text
	})
	add(store.Query{}, "changes of a request", "outbox_request", false, func(q *store.Query) (text string) {
		q.Args, text = outbox.RequestQuery("r7", tr.folders[0], 200)
		return text
	})
}

// several adds the shapes of lists over many subtrees, and of counters.
func (tr tree) several(e engine.Engine, add func(store.Query, string, string, bool, func(*store.Query) string)) {
	var many []store.Span
	for i := range 60 {
		many = append(many, store.Below(tr.folders[1]+resource.UID(fmt.Sprintf("/%016x", i))))
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
				if e.Postgres {
					add(q, name, index, true, func(q *store.Query) string { return q.PlanLateral(many[:n]) })
				} else {
					add(q, name, index, false, func(q *store.Query) string { return q.PlanKeys(many[0], q.PlanNeed()) })
				}
			}
		}
		add(tr.query(e, "groups", "name", page.Request{}), fmt.Sprintf("counters of %d grants", n), "counters_pkey PRIMARY",
			false,
			func(q *store.Query) string { return q.PlanCounters(many[:n]) })
	}
	set := store.OfSet(tr.folders[0], tr.folders[1])
	add(tr.query(e, "groups", "name", page.Request{Size: 50}), "rows by their uids", "groups_uid", true,
		func(q *store.Query) string {
			return q.PlanPage(set)
		})
	if !e.Postgres {
		add(tr.query(e, "groups", "name", page.Request{Size: 50}), "rows by their segments", "PRIMARY", true,
			func(q *store.Query) string {
				return q.PlanFetch([]int64{1, 2})
			})
	}
}

// plant adds n resources of each kind below folders at depth 1 to 4.
func plant(n int, row func(table string, values []any)) tree {
	var tr tree
	uid := resource.NewRoot()
	role := resource.NewRoot() // the table roles is small, so a planner may want to start with it
	row("roles", append(store.TreeColumns(role), "role", "", "[]", 0, 0))
	for d := 1; d <= 4; d++ {
		tr.folders = append(tr.folders, uid)
		row("groups", append(store.TreeColumns(uid), fmt.Sprintf("folder %d", d), "", false, 0, 0, 0))
		tr.providers = append(tr.providers, uid.NewChild())
		row("identity_providers", append(store.TreeColumns(tr.providers[d-1]), "provider", "", store.Segment(role), "{}",
			[]byte{}, 0, 0, false, "", 0, false))
		tr.repos = append(tr.repos, uid.NewChild())
		row("repos", append(store.TreeColumns(tr.repos[d-1]), "repo", "", "{}", "", 0, 0))
		uid = uid.NewChild()
	}
	for i := range n {
		parent := tr.folders[i%4]
		g, p := parent.NewChild(), parent.NewChild()
		row("groups", append(store.TreeColumns(g), fmt.Sprintf("g%d", i), "", false, 0, i, i))
		row("identities", append(store.TreeColumns(p), fmt.Sprintf("i%d", i/2), "", "", "", "", i%4, "{}", "", "", "", 0, i,
			i, nil, ""))
		row("role_bindings", append(store.TreeColumns(parent.NewChild()), string(p), store.Segment(role), i))
		row("identity_providers", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("p%d", i), "",
			store.Segment(role), "{}", []byte{}, i, i, false, "", 0, false))
		row("account_associations", append(store.TreeColumns(g), fmt.Sprintf("a%d", i), "", "{}", i, i))
		row("budgets", append(store.TreeColumns(g), "{}", i, i))
		row("exceptions", append(store.TreeColumns(parent.NewChild()), "{}", store.Segment(g), 0, 0, i, i))
		row("pull_rules", append(store.TreeColumns(parent.NewChild()), "{}", i, i))
		row("signers", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("s%d", i), "{}", i, i))
		row("replications", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("c%d", i), "{}", []byte{}, i, i))
		row("access_rules", append(store.TreeColumns(parent.NewChild()), "{}", store.Segment(role), nil, i, i))
		row("role_requests", append(store.TreeColumns(parent.NewChild()), "{}", string(p), i%2, i, i))
		row("group_invites", append(store.TreeColumns(parent.NewChild()), store.Segment(role), "", false,
			fmt.Sprintf("k%d", i), []byte{}, 0, i))
		row("subscriptions", append(store.TreeColumns(parent.NewChild()), "https://sink.test", 0, i))
		row("external_group_role_mappings", append(store.TreeColumns(tr.providers[i%4].NewChild()), fmt.Sprintf("m%d", i),
			store.Segment(role), string(uid), i))
		row("repos", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("r%d", i), "", "{}", "", i, i))
		digest := fmt.Sprintf("d%d", i/8)
		if i%8 < 4 { // half of the tags have their own manifest
			row("manifests", []any{store.Segment(tr.repos[i%4]), digest, "", 0, "", "", "", 0, []byte{}})
		}
		row("tags", append(store.TreeColumns(tr.repos[i%4].NewChild()), fmt.Sprintf("t%d", i), digest, i%8/7, i%50 == 0, "",
			i, i))
		row("pulls", append(store.TreeColumns(tr.repos[i%4].NewChild()), false, fmt.Sprintf("d%d", i/2), "",
			fmt.Sprintf("i%d", i/2), "", "", i, 0))
		row("trash", append(store.TreeColumns(tr.repos[i%4].NewChild()), 1, fmt.Sprintf("t%d", i), fmt.Sprintf("d%d", i/2),
			false, 0, "{}", i, i))
		row("advisory_feeds", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("f%d", i), "", 0, true, 0, "{}",
			[]byte{}, i, i))
		row("accounts", append(store.TreeColumns(parent.NewChild()), fmt.Sprintf("e%d", i), "", string(p), "", []byte{}, 0,
			[]byte{}, 0, false, 0, i, i, ""))
		if i%10 == 0 {
			row("counters", []any{"groups", store.Segment(g), 0, 0, 0})
		}
	}
	return tr
}

// insertTree returns a function that adds n resources of each kind to a database.
func insertTree(t *testing.T, n int, tr *tree) func(*store.DB) {
	return func(db *store.DB) {
		tables := map[string][][]any{}
		*tr = plant(n, func(table string, values []any) { tables[table] = append(tables[table], values) })
		inserted := slices.Insert(slices.Clone(store.Kinds), slices.Index(store.Kinds, "tags"), "manifests")
		for _, table := range append([]string{"counters"}, inserted...) {
			if rows := tables[table]; len(rows) > 0 {
				plantest.Insert(t, db, table, rows...)
			}
		}
		insertEvents(t, db, n, tr.folders[0])
	}
}

// insertEvents adds n events that half as many requests caused.
func insertEvents(t *testing.T, db *store.DB, n int, group resource.UID) {
	t.Helper()
	err := db.Write(t.Context(), func(x *store.Tx) error {
		var all [][]any
		for i := range n {
			row, err := x.Event(resource.WithActor(t.Context(), resource.Actor{RequestID: fmt.Sprintf("r%d", i/2)}),
				resource.GroupUpdated, group, group, nil, nil)
			if err != nil {
				return err
			}
			all = append(all, row)
		}
		return x.EmitAll(t.Context(), all)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlansOfSQLite(t *testing.T) {
	var tr tree
	plantest.SQLite(t, insertTree(t, 2000, &tr), func(db *store.DB) []plantest.Shape { return tr.shapes(db.Engine) })
}

func TestPlansOfPostgres(t *testing.T) {
	var tr tree
	plantest.Postgres(t, insertTree(t, 4000, &tr), func(db *store.DB) []plantest.Shape { return tr.shapes(db.Engine) })
}
