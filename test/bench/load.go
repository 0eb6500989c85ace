package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A dataset is a loaded database.
type dataset struct {
	tree
	url        string
	identities int // with grantsEach bindings each
}

// groups returns a database with n groups.
func (m *measurement) groups(ctx context.Context, n int) dataset {
	return m.load(ctx, fmt.Sprintf("groups_%d", n), tree{groups: n}, 0, nil)
}

// bindings returns a database with n bindings.
func (m *measurement) bindings(ctx context.Context, n int) dataset {
	return m.load(ctx, fmt.Sprintf("bindings_%d", n), tree{groups: max(n/100, smallRows)}, n/grantsEach, nil)
}

// timedBindings returns a database like that of bindings, of which every second one has an end.
func (m *measurement) timedBindings(ctx context.Context, n int) dataset {
	return m.load(ctx, fmt.Sprintf("timed_%d", n), tree{groups: max(n/100, smallRows), timed: true}, n/grantsEach, nil)
}

// loadedSetting is the setting that marks a dataset as complete.
const loadedSetting = "bench"

// load returns a dataset. It loads the dataset unless it exists from this run or an earlier
// one. The store creates the schema, and a server in dev mode the organization. more returns further
// tables, unless it is nil.
func (m *measurement) load(
	ctx context.Context, name string, of tree, identities int, more func(dataset) []table,
) dataset {
	d := dataset{tree: of, identities: identities}
	var found bool
	if d.url, found = m.engine.create(ctx, name); found {
		if d.org = loaded(ctx, d.url); d.org != "" {
			return d
		}
		m.engine.replace(ctx, d.url)
	}
	begin := time.Now()
	s := m.startService(ctx, d.url)
	d.org = s.org
	check(s.stop())
	count := counters{}
	tables := []table{d.groupTable().counted(count)}
	if identities > 0 {
		tables = append(tables, d.identityTable(identities).counted(count), d.bindingTable(identities).counted(count))
	}
	if more != nil {
		tables = append(tables, more(d)...)
	}
	m.engine.fill(ctx, d.url, tables)
	d.finish(ctx, m.engine, count)
	m.say("%s: loaded %s in %.0f s", m.engine.name(), name, time.Since(begin).Seconds())
	return d
}

// loaded returns the organization of a dataset, or "" if the dataset is incomplete.
func loaded(ctx context.Context, url string) resource.UID {
	s := must(store.Open(ctx, url))
	org, err := s.Setting(ctx, loadedSetting)
	check(s.Close())
	if errors.Is(err, fault.NotFound) {
		return ""
	}
	return resource.UID(must(org, err))
}

// finish writes the counters, and marks the dataset as complete.
func (d dataset) finish(ctx context.Context, e engine, count counters) {
	db := e.connect(d.url, 1)
	defer db.Close()
	var seg int64
	check(db.QueryRowContext(ctx, `SELECT seg FROM groups WHERE uid = $1`, string(d.org)).Scan(&seg))
	if seg != number(d.org) {
		check(errors.New("the store converts UIDs to numbers in another way than the function number"))
	}
	count.write(ctx, db)
	check(db.Close())
	s := must(store.Open(ctx, d.url))
	check(errors.Join(s.SetSetting(ctx, loadedSetting, []byte(d.org)), s.Close()))
}

// write adds the counters to their first shards.
func (c counters) write(ctx context.Context, db *sql.DB) {
	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	for k, n := range c {
		must(tx.ExecContext(ctx, `
			INSERT INTO counters (kind, grp, shard, n, children) VALUES ($1, $2, 0, $3, $4)
			ON CONFLICT (kind, grp, shard) DO UPDATE
			SET n = counters.n + excluded.n, children = counters.children + excluded.children`,
			k.kind, k.group, n[0], n[1]))
	}
	check(tx.Commit())
}
