package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
)

// writes compares creating groups over HTTP with plain durable inserts of single rows.
func writes(ctx context.Context, m *measurement) {
	d := m.groups(ctx, m.bench.rows)
	groups, events := d.count(ctx, m.engine)
	s := m.startService(ctx, d.url)
	took := m.createGroups(ctx, s, d.folders())
	check(s.stop())
	m.under("create: p50", median(took).Seconds(), 0, seconds)
	m.under("create: p99", quantile(took, 0.99).Seconds(), 0.1, seconds)
	m.note("A write and sync of 4 KB takes %s on this disk.", brief(syncTime(m.folder)))
	groupsAfter, eventsAfter := d.count(ctx, m.engine)
	m.exactly("create: groups more than before", groupsAfter-groups, int64(len(took)))
	m.exactly("create: outbox rows more than before", eventsAfter-events, int64(len(took)))
	m.exactly("create: counters that are wrong", d.wrongCounters(ctx), 0)
}

// createGroups creates groups with random names in random folders and inserts plain rows
// alternately. It returns how long each group took.
func (m *measurement) createGroups(ctx context.Context, s *service, folders []resource.UID) (took []time.Duration) {
	db := m.engine.connect(empty(ctx, m.engine, "plain"), clients)
	defer db.Close()
	must(db.ExecContext(ctx, `CREATE TABLE plain (id INTEGER PRIMARY KEY, body TEXT NOT NULL)`))
	var mu sync.Mutex
	create := func(ctx context.Context, _ int) error {
		body := fmt.Sprintf(`{"name": %q, "description": %q}`, newName(), description)
		begin := time.Now()
		_, err := s.post(ctx, "/iam/v2beta1/groups/"+string(random(folders)), body)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(begin))
		return err
	}
	var id atomic.Int64
	insert := func(ctx context.Context, _ int) error {
		_, err := db.ExecContext(ctx, `INSERT INTO plain (id, body) VALUES ($1, $2)`, id.Add(1), description)
		return err
	}
	m.compareRates(ctx, "create: groups / plain durable inserts", 0.08, create, insert)
	return took
}

// count returns the number of groups, and of events of created groups in the outbox.
func (d dataset) count(ctx context.Context, e engine) (groups, events int64) {
	db := e.connect(d.url, 1)
	defer db.Close()
	check(db.QueryRowContext(ctx, `
		SELECT (SELECT count(*) FROM groups), (SELECT count(*) FROM outbox WHERE type = $1)`,
		string(resource.GroupCreated)).Scan(&groups, &events))
	return groups, events
}

// wrongCounters returns how many counters of the store are wrong.
func (d dataset) wrongCounters(ctx context.Context) int64 {
	s := must(store.Open(ctx, d.url))
	drifts, err := recount.Drifts(ctx, s)
	check(errors.Join(err, s.Close()))
	return int64(len(drifts))
}

// syncTime returns how long a small durable write takes.
func syncTime(folder string) time.Duration {
	f := must(os.CreateTemp(folder, "sync-"))
	var all []time.Duration
	for range 200 {
		begin := time.Now()
		must(f.Write(make([]byte, 4096)))
		check(f.Sync())
		all = append(all, time.Since(begin))
	}
	check(f.Close())
	return median(all)
}
