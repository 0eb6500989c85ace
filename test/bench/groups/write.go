package groups

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
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// Writes compares the creation of groups over HTTP with plain durable inserts of single rows.
func Writes(ctx context.Context, m *rig.Measurement) {
	d := m.Groups(ctx, m.Bench.Rows)
	groups, events := count(ctx, d, m.Engine)
	s := m.StartService(ctx, d.URL)
	took := createGroups(ctx, m, s, d.Folders())
	rig.Check(s.Stop())
	m.Below("create: p50", rig.Median(took).Seconds(), 0, rig.Seconds)
	m.Below("create: p99", rig.Quantile(took, 0.99).Seconds(), 0.1, rig.Seconds)
	m.Note("A write and sync of 4 KB takes %s on this disk.", rig.FormatDuration(syncTime(m.Folder)))
	groupsAfter, eventsAfter := count(ctx, d, m.Engine)
	m.Exactly("create: groups more than before", groupsAfter-groups, int64(len(took)))
	m.Exactly("create: outbox rows more than before", eventsAfter-events, int64(len(took)))
	m.Exactly("create: counters that are wrong", wrongCounters(ctx, d), 0)
}

// createGroups alternates between creating groups, which have random names and are in random folders, and inserting
// plain rows. It returns the duration of each creation.
func createGroups(
	ctx context.Context, m *rig.Measurement, s *rig.Service, folders []resource.UID,
) (took []time.Duration) {
	db := m.Engine.Connect(rig.EmptyDatabase(ctx, m.Engine, "plain"), rig.Clients)
	defer db.Close()
	rig.Must(db.ExecContext(ctx, `CREATE TABLE plain (id INTEGER PRIMARY KEY, body TEXT NOT NULL)`))
	var mu sync.Mutex
	create := func(ctx context.Context, _ int) error {
		body := fmt.Sprintf(`{"name": %q, "description": %q}`, rig.NewName(), rig.Description)
		begin := time.Now()
		_, err := s.Post(ctx, "/iam/v2beta1/groups/"+string(rig.Random(folders)), body)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(begin))
		return err
	}
	var id atomic.Int64
	insert := func(ctx context.Context, _ int) error {
		_, err := db.ExecContext(ctx, `INSERT INTO plain (id, body) VALUES ($1, $2)`, id.Add(1), rig.Description)
		return err
	}
	m.CompareRates(ctx, "create: groups / plain durable inserts", 0.08, create, insert)
	return took
}

// count returns the number of groups, and the number of events in the outbox about created groups.
func count(ctx context.Context, d rig.Dataset, e rig.Engine) (groups, events int64) {
	db := e.Connect(d.URL, 1)
	defer db.Close()
	rig.Check(db.QueryRowContext(ctx, `
		SELECT (SELECT count(*) FROM groups), (SELECT count(*) FROM outbox WHERE type = $1)`,
		string(resource.GroupCreated)).Scan(&groups, &events))
	return groups, events
}

// wrongCounters returns the number of counters in the store that differ from the rows.
func wrongCounters(ctx context.Context, d rig.Dataset) int64 {
	s := rig.Must(store.Open(ctx, d.URL))
	drifts, err := recount.Drifts(ctx, s)
	rig.Check(errors.Join(err, s.Close()))
	return int64(len(drifts))
}

// syncTime returns the median duration of a small write that is synced to disk.
func syncTime(folder string) time.Duration {
	f := rig.Must(os.CreateTemp(folder, "sync-"))
	var times []time.Duration
	for range 200 {
		begin := time.Now()
		rig.Must(f.Write(make([]byte, 4096)))
		rig.Check(f.Sync())
		times = append(times, time.Since(begin))
	}
	rig.Check(f.Close())
	return rig.Median(times)
}
