package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// A dataset is a loaded database.
type dataset struct {
	tree
	url        string
	identities int // with grantsEach bindings each
}

// groups returns a database with n groups.
func (b *bench) groups(ctx context.Context, e engine, n int) (dataset, error) {
	return b.load(ctx, e, fmt.Sprintf("groups_%d", n), n, 0)
}

// bindings returns a database with n bindings.
func (b *bench) bindings(ctx context.Context, e engine, n int) (dataset, error) {
	return b.load(ctx, e, fmt.Sprintf("bindings_%d", n), max(n/100, smallRows), n/grantsEach)
}

// loadedSetting is the setting that marks a dataset as complete.
const loadedSetting = "bench"

// load returns a dataset. It loads the dataset unless it exists from this run or an earlier
// one. The store creates the schema, and a server in dev mode the organization.
func (b *bench) load(ctx context.Context, e engine, name string, groups, identities int) (dataset, error) {
	d := dataset{tree: tree{groups: groups}, identities: identities}
	var found bool
	var err error
	if d.url, found, err = e.create(ctx, name); err != nil {
		return d, err
	}
	if found {
		if d.org, err = loaded(ctx, d.url); err != nil || d.org != "" {
			return d, err
		}
		if err := e.replace(ctx, d.url); err != nil {
			return d, err
		}
	}
	begin := time.Now()
	s, err := b.serve(ctx, d.url)
	if err != nil {
		return d, fmt.Errorf("create the organization: %w", err)
	}
	d.org = s.org
	if err := s.stop(); err != nil {
		return d, err
	}
	count := counters{}
	tables := []table{d.groupTable().counted(count)}
	if identities > 0 {
		tables = append(tables, d.identityTable(identities).counted(count), d.bindingTable(identities).counted(count))
	}
	if err := e.fill(ctx, d.url, tables); err != nil {
		return d, fmt.Errorf("fill: %w", err)
	}
	if err := d.finish(ctx, e, count); err != nil {
		return d, err
	}
	b.say("%s: loaded %s in %.0f s", e.name(), name, time.Since(begin).Seconds())
	return d, nil
}

// loaded returns the organization of a dataset, or "" if the dataset is incomplete.
func loaded(ctx context.Context, url string) (resource.UID, error) {
	s, err := store.Open(ctx, url)
	if err != nil {
		return "", err
	}
	org, err := s.Setting(ctx, loadedSetting)
	if errors.Is(err, fault.NotFound) {
		return "", s.Close()
	}
	return resource.UID(org), errors.Join(err, s.Close())
}

// finish writes the counters, and marks the dataset as complete.
func (d dataset) finish(ctx context.Context, e engine, count counters) error {
	db, err := e.connect(d.url, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	var seg int64
	if err := db.QueryRowContext(ctx, `SELECT seg FROM groups WHERE uid = $1`, string(d.org)).Scan(&seg); err != nil {
		return err
	}
	if seg != number(d.org) {
		return errors.New("the store converts UIDs to numbers in another way than the function number")
	}
	if err := count.write(ctx, db); err != nil {
		return fmt.Errorf("write counters: %w", err)
	}
	if err := db.Close(); err != nil {
		return err
	}
	s, err := store.Open(ctx, d.url)
	if err != nil {
		return err
	}
	return errors.Join(s.SetSetting(ctx, loadedSetting, []byte(d.org)), s.Close())
}

// write adds the counters to their first shards.
func (c counters) write(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for k, n := range c {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO counters (kind, grp, shard, n, children) VALUES ($1, $2, 0, $3, $4)
			ON CONFLICT (kind, grp, shard) DO UPDATE
			SET n = counters.n + excluded.n, children = counters.children + excluded.children`,
			k.kind, k.group, n[0], n[1])
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
