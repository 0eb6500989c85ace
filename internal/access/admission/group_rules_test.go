package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// groupColumns contains the names of columns that refer to a group.
var groupColumns = []string{"parent", "grp", "org", "organization", "root", "place"}

// A catalogColumn is a column as the catalog of SQLite describes it.
type catalogColumn struct {
	name, kind string
	required   bool   // the column has no default and must not be NULL
	refers     string // the table that its foreign key refers to, or ""
}

// readCatalog returns the columns of every table.
func readCatalog(t *testing.T) map[string][]catalogColumn {
	t.Helper()
	s := storetest.Open(t, dbtest.SQLite(t))
	tables := map[string][]catalogColumn{}
	testkit.Must(t, s.Rows(t.Context(), `
		SELECT m.name, c.name, c.type, c."notnull" = 1 AND c.dflt_value IS NULL OR c.pk > 0,
			coalesce((SELECT max(f."table") FROM pragma_foreign_key_list(m.name) AS f WHERE f."from" = c.name), '')
		FROM sqlite_master AS m, pragma_table_info(m.name) AS c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE 'goose_%' ORDER BY m.name, c.cid`, nil,
		func(row store.Scanner) (bool, error) {
			var table string
			var c catalogColumn
			err := row.Scan(&table, &c.name, &c.kind, &c.required, &c.refers)
			tables[table] = append(tables[table], c)
			return false, err
		}))
	return tables
}

// TestGroupRulesAreComplete checks that every table with a column for a group declares what happens
// when the group is deleted.
func TestGroupRulesAreComplete(t *testing.T) {
	tables, rules := readCatalog(t), map[string]grouprule.Rule{}
	for _, r := range admission.GroupRules() {
		if rules[r.Table].Table != "" {
			t.Errorf("two rules for the table %s", r.Table)
		}
		if tables[r.Table] == nil {
			t.Errorf("a rule for %s, which is no table", r.Table)
		}
		rules[r.Table] = r
	}
	for table, columns := range tables {
		for _, c := range columns {
			group := c.refers == "groups" || c.refers == "" && slices.Contains(groupColumns, c.name)
			if group && rules[table].Table == "" {
				t.Errorf("the table %s has the column %s for a group, and no rule: add one to GroupRules of its package", table,
					c.name)
			}
		}
	}
	for _, r := range rules {
		if r.Action == grouprule.WithOwner && rules[r.Owner].Table == "" {
			t.Errorf("%s belongs to %s, which has no rule", r.Table, r.Owner)
		}
		if r.Action == grouprule.Keep && r.Reason == "" {
			t.Errorf("no reason to keep the rows of %s", r.Table)
		}
	}
}

// TestGroupRules checks, for every table, that deleting a group does what the table's package
// declares.
func TestGroupRules(t *testing.T) {
	tables := readCatalog(t)
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{iamtest.OwnerRole}))
		for _, r := range admission.GroupRules() {
			if r.Action == grouprule.WithOwner {
				continue
			}
			t.Run(r.Table, func(t *testing.T) { checkGroupRule(t, s, r, tables[r.Table]) })
		}
	})
}

// checkGroupRule adds a row to the rule's table, deletes the row's group, and checks what happens
// to the row.
func checkGroupRule(t *testing.T, s *storetest.Store, r grouprule.Rule, columns []catalogColumn) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "rule-"+strings.ReplaceAll(r.Table, "_", "-")).UID
	where, key := addRow(t, s, r, columns, org)
	rows := func() (n int) {
		testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM `+r.Table+where, []any{key}, &n))
		return n
	}
	before := rows()
	if before == 0 {
		t.Fatal("the row is missing")
	}
	err := s.DeleteGroup(t.Context(), org, "")
	if r.Action == grouprule.Block {
		want := fault.NotEmpty("group", r.Label)
		if err == nil || err.Error() != want.Error() || rows() != before {
			t.Fatalf("error = %v with %d rows, want %v with %d", err, rows(), want, before)
		}
		_, err = s.Exec(t.Context(), `DELETE FROM `+r.Table+where, key)
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteGroup(t.Context(), org, ""))
		return
	}
	testkit.Must(t, err)
	if after := rows(); r.Action == grouprule.Delete && after != 0 || r.Action == grouprule.Keep && after < before {
		t.Errorf("%d of %d rows are left", after, before)
	}
}

// addRow adds a row for a group to a table, with a value for every column that needs one. It returns a condition that
// selects the rows of the group, and its parameter.
func addRow(
	t *testing.T, s *storetest.Store, r grouprule.Rule, columns []catalogColumn, org resource.UID,
) (where string, key any) {
	uid, asGroup := org.NewChild(), r.Column == "seg" || r.Table == "budgets"
	if asGroup {
		uid = org
	}
	var names, places []string
	var args []any
	for _, c := range columns {
		value, ok := rowValue(r.Table, c, org, uid)
		if !ok {
			continue
		}
		args = append(args, value)
		names, places = append(names, c.name), append(places, fmt.Sprintf("$%d", len(args)))
		if where == "" && (c.refers == "groups" || slices.Contains(groupColumns, c.name) || asGroup && c.name == "seg") {
			where, key = ` WHERE `+c.name+` = $1`, value
		}
	}
	_, err := s.Exec(t.Context(), `INSERT INTO `+r.Table+` (`+strings.Join(names, ", ")+`) VALUES (`+
		strings.Join(places, ", ")+`)`, args...)
	testkit.Must(t, err)
	return where, key
}

// rowValue returns the value for a column in a new row that has a uid and belongs to an
// organization. ok is false if the column needs no value.
func rowValue(table string, c catalogColumn, org, uid resource.UID) (value any, ok bool) {
	isGroup := c.refers == "groups" || c.refers == "" && slices.Contains(groupColumns, c.name) || c.name == "a1"
	switch {
	case c.name == "seq" || uid == org && (c.name == "parent" || c.name == "a1"):
		return nil, false
	case c.name == "seg":
		return store.Segment(uid), true
	case c.name == "uid":
		return string(uid), true
	case isGroup && c.kind == "TEXT":
		return string(org), true
	case isGroup:
		return store.Segment(org), true
	case !c.required:
		return nil, false
	case c.refers == "roles":
		return store.Segment(iamtest.OwnerRole.UID), true
	case table == "counters" && c.name == "kind":
		return "repos", true
	}
	switch c.kind {
	case "TEXT":
		return `{}`, true
	case "BLOB":
		return []byte{1}, true
	case "BOOLEAN":
		return false, true
	}
	return int64(1), true
}
