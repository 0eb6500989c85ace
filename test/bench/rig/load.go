package rig

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

// A Dataset is a database into which rows have been loaded.
type Dataset struct {
	Tree
	URL        string
	Identities int // number of identities, each with GrantsEach bindings
}

// Groups returns a database with n groups.
func (m *Measurement) Groups(ctx context.Context, n int) Dataset {
	return m.Load(ctx, fmt.Sprintf("groups_%d", n), Tree{Groups: n}, 0, nil)
}

// Bindings returns a database with n bindings.
func (m *Measurement) Bindings(ctx context.Context, n int) Dataset {
	return m.Load(ctx, fmt.Sprintf("bindings_%d", n), Tree{Groups: max(n/100, SmallRows)}, n/GrantsEach, nil)
}

// TimedBindings returns a database with n bindings. Every second binding has an expiry.
func (m *Measurement) TimedBindings(ctx context.Context, n int) Dataset {
	return m.Load(ctx, fmt.Sprintf("timed_%d", n), Tree{Groups: max(n/100, SmallRows), timed: true}, n/GrantsEach, nil)
}

// loadedSetting is the name of the database setting that marks a dataset as complete.
const loadedSetting = "bench"

// Load returns a dataset, and loads it first unless this run or an earlier run has loaded it. The store creates the
// schema, and a server in dev mode creates the organization. extra returns further tables to load; it may be nil.
func (m *Measurement) Load(
	ctx context.Context, name string, t Tree, identities int, extra func(Dataset) []Table,
) Dataset {
	d := Dataset{Tree: t, Identities: identities}
	var found bool
	if d.URL, found = m.Engine.Create(ctx, name); found {
		if d.Org = LoadedOrg(ctx, d.URL); d.Org != "" {
			return d
		}
		m.Engine.Replace(ctx, d.URL)
	}
	begin := time.Now()
	s := m.StartService(ctx, d.URL)
	d.Org = s.Org
	Check(s.Stop())
	count := Counters{}
	tables := []Table{d.groupTable().Counted(count)}
	if identities > 0 {
		tables = append(tables, d.identityTable(identities).Counted(count), d.BindingTable(identities).Counted(count))
	}
	if extra != nil {
		tables = append(tables, extra(d)...)
	}
	m.Engine.Fill(ctx, d.URL, tables)
	d.finish(ctx, m.Engine, count)
	m.Logf("%s: loaded %s in %.0f s", m.Engine.Name(), name, time.Since(begin).Seconds())
	return d
}

// LoadedOrg returns the UID of the organization in a dataset, or "" if the dataset is incomplete.
func LoadedOrg(ctx context.Context, url string) resource.UID {
	s := Must(store.Open(ctx, url))
	org, err := s.Setting(ctx, loadedSetting)
	Check(s.Close())
	if errors.Is(err, fault.NotFound) {
		return ""
	}
	return resource.UID(Must(org, err))
}

// finish writes the counters to the database, and marks the dataset as complete.
func (d Dataset) finish(ctx context.Context, e Engine, count Counters) {
	db := e.Connect(d.URL, 1)
	defer db.Close()
	var seg int64
	Check(db.QueryRowContext(ctx, `SELECT seg FROM groups WHERE uid = $1`, string(d.Org)).Scan(&seg))
	if seg != SegmentNumber(d.Org) {
		Check(errors.New("the store and the function SegmentNumber convert UIDs to different numbers"))
	}
	count.Write(ctx, db)
	Check(db.Close())
	s := Must(store.Open(ctx, d.URL))
	Check(errors.Join(s.SetSetting(ctx, loadedSetting, []byte(d.Org)), s.Close()))
}

// Write adds the counters to the counters in the database, in the first shard of each.
func (c Counters) Write(ctx context.Context, db *sql.DB) {
	tx := Must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	for k, n := range c {
		Must(tx.ExecContext(ctx, `
			INSERT INTO counters (kind, grp, shard, n, children) VALUES ($1, $2, 0, $3, $4)
			ON CONFLICT (kind, grp, shard) DO UPDATE
			SET n = counters.n + excluded.n, children = counters.children + excluded.children`,
			k.kind, k.group, n[0], n[1]))
	}
	Check(tx.Commit())
}
