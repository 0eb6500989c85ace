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
	forest
	url        string
	identities int // with grantsEach bindings each
}

// groups returns a database of so many groups.
func (b *bench) groups(ctx context.Context, e engine, n int) (dataset, error) {
	return b.load(ctx, e, fmt.Sprintf("groups_%d", n), n, 0)
}

// bindings returns a database of so many bindings.
func (b *bench) bindings(ctx context.Context, e engine, n int) (dataset, error) {
	return b.load(ctx, e, fmt.Sprintf("bindings_%d", n), max(n/100, smallRows), n/grantsEach)
}

// loadedSetting is the setting that a dataset ends with: one that was cut off
// has none.
const loadedSetting = "bench"

// load makes a dataset, or finds the one of this run or of an earlier one. The
// store makes the schema, and a server in dev mode the organization.
func (b *bench) load(ctx context.Context, e engine, name string, groups, identities int) (dataset, error) {
	d := dataset{forest: forest{groups: groups}, identities: identities}
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
	if d.org, err = b.found(ctx, d.url); err != nil {
		return d, fmt.Errorf("found the organization: %w", err)
	}
	count := tally{}
	tables := []table{d.groupTable().tallied(count)}
	if identities > 0 {
		tables = append(tables, d.identityTable(identities).tallied(count), d.bindingTable(identities).tallied(count))
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

// loaded returns the organization of a dataset, or "" if its loading was cut off.
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

// found makes an organization.
func (b *bench) found(ctx context.Context, url string) (resource.UID, error) {
	s, err := b.serve(ctx, url)
	if err != nil {
		return "", err
	}
	return s.org, s.stop()
}

// finish writes the counters, and that the dataset is complete.
func (d dataset) finish(ctx context.Context, e engine, count tally) error {
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
		return errors.New("the store numbers uids in another way than this program: see number")
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

// write adds the tally to the first shard of each counter.
func (c tally) write(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for k, n := range c {
		_, err := tx.ExecContext(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES ($1, $2, 0, $3, $4)
			ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n + excluded.n, children = counters.children + excluded.children`,
			k.kind, k.group, n[0], n[1])
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
