package store_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// TestNamedIndex checks for which lists a statement names an index: on SQLite, for a range of uids.
func TestNamedIndex(t *testing.T) {
	const root = resource.UID("0123456789abcdef0123456789abcdef01234567")
	below, children := store.Below(root), store.ChildrenOf(root)
	none, flag, digest := store.TestCondition{}, store.TestCondition{Column: "deprecated", Flag: true},
		store.TestCondition{Column: "digest", Value: "d"}
	tests := map[string]struct {
		postgres bool
		column   string
		span     store.Span
		where    store.TestCondition
		index    string
	}{
		"by uid below a group":               {false, "uid", below, none, "tags_uid"},
		"with a flag":                        {false, "uid", below, flag, "tags_deprecated"},
		"with another filter":                {false, "uid", below, digest, ""},
		"by name":                            {false, "name", below, none, ""},
		"by name with a flag":                {false, "name", below, flag, ""},
		"directly in a group":                {false, "uid", children, none, ""},
		"directly in a group, with a flag":   {false, "uid", children, flag, ""},
		"on PostgreSQL":                      {true, "uid", below, none, ""},
		"on PostgreSQL with a flag":          {true, "uid", below, flag, ""},
		"directly in a group, on PostgreSQL": {true, "uid", children, none, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q := store.Query{Engine: engine.Engine{Postgres: tt.postgres}, Table: "tags", Columns: "t.uid", Column: tt.column}
			if tt.where != none {
				q.SetWhere(tt.where)
			}
			text, want := q.PlanPage(tt.span), " FROM tags AS t WHERE "
			if tt.index != "" {
				want = " FROM tags AS t INDEXED BY " + tt.index + " WHERE "
			}
			if !strings.Contains(text, want) {
				t.Errorf("the statement is %q, want%q", text, want)
			}
		})
	}
}
