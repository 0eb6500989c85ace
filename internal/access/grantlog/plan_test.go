package grantlog

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
)

// TestPastPlans checks that the statements that read the history of grants use indexes.
func TestPastPlans(t *testing.T) {
	org, identity := resource.NewRoot(), resource.NewRoot()
	groups := map[resource.UID]string{org: "org"}
	for range 30 {
		groups[org.NewChild()] = "folder"
	}
	insert := func(db *store.DB) {
		var rows [][]any
		seq := 0
		for group := range maps.Keys(groups) {
			for i := range 100 {
				uid, from, to := group.NewChild(), int64(i+1), int64(i+50)
				if i > 50 {
					to = math.MaxInt64
				}
				seq++
				rows = append(rows, []any{seq, store.Segment(uid), string(uid), store.Segment(group), store.Segment(org),
					string(resource.NewRoot()), int64(i % 7), from, 0, 0, from, to, "", ""})
			}
		}
		head := `INSERT INTO binding_history (seq, seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms,
			from_ms, to_ms, made_by, ended_by)`
		if db.Engine.Postgres {
			head += ` OVERRIDING SYSTEM VALUE`
		}
		err := db.Write(t.Context(), func(x *store.Tx) error { return x.InsertRows(t.Context(), head, rows, ``) })
		if err != nil {
			t.Fatal(err)
		}
	}
	shapes := func(db *store.DB) (all []plantest.Shape) {
		at := store.FromMS(60)
		add := func(name, index string, q store.Query, text string) {
			all = append(all, plantest.Shape{Name: name, Index: index, Sort: true, Text: text, Args: q.Args})
		}
		byUID := page.Request{Size: 50, Order: page.Order{Field: "uid"}}
		one := map[resource.UID]string{org: ""}
		on := []resource.UID{org}
		for name, tt := range map[string]struct {
			index string
			Query
		}{
			"all bindings on a group":      {"binding_history_on", Query{At: at, Groups: on}},
			"of an identity on a group":    {"binding_history_of", Query{At: at, Groups: on, Identity: identity}},
			"of an identity below a group": {"binding_history_of", Query{At: at, Under: on, Identity: identity}},
			"of a role on a group": {
				"binding_history_on", Query{At: at, Groups: on, Roles: []resource.UID{org.NewChild()}},
			},
		} {
			q := store.Query{Engine: db.Engine, Column: "uid", Page: byUID}
			text := `SELECT t.uid FROM ` + tt.source(&q, one) + ` ORDER BY ` + q.Order() + q.Limit(51)
			add(name, tt.index, q, text)
		}
		for _, b := range diffBranches {
			q := store.Query{Engine: db.Engine}
			d := DiffQuery{From: at, To: at.Add(time.Millisecond), Under: []resource.UID{org}}
			index := map[string]string{"from_ms": "binding_history_begun", "to_ms": "binding_history_over",
				"start_ms": "binding_history_start", "expire_ms": "binding_history_expire"}[b.column]
			text := b.text(d.scope(&q, one))
			add("difference by "+b.column, index+" binding_history_of", q, text)
		}
		return all
	}
	t.Run("sqlite", func(t *testing.T) { plantest.SQLite(t, insert, shapes) })
	t.Run("postgres", func(t *testing.T) { plantest.Postgres(t, insert, shapes) })
}
