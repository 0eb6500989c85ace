package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	created     = 10_000 // groups
	writeRounds = 20
)

// writes compares creating groups over HTTP with plain durable inserts of single rows.
func writes(ctx context.Context, b *bench, e engine, r *report) error {
	d, err := b.groups(ctx, e, b.rows)
	if err != nil {
		return err
	}
	before, err := d.audit(ctx, e)
	if err != nil {
		return err
	}
	if err := createGroups(ctx, b, e, d, r); err != nil {
		return err
	}
	after, err := d.audit(ctx, e)
	if err != nil {
		return err
	}
	r.exactly("create: groups more than before", after.rows-before.rows, created)
	r.exactly("create: counter of the organization", after.counted, after.rows)
	r.exactly("create: counters of folders that are wrong", after.wrong, 0)
	r.exactly("create: outbox rows more than before", after.events-before.events, created)
	return nil
}

// createGroups creates groups and inserts plain rows alternately.
func createGroups(ctx context.Context, b *bench, e engine, d dataset, r *report) (err error) {
	s, err := b.serve(ctx, d.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	plain, err := openPlain(ctx, e)
	if err != nil {
		return err
	}
	defer plain.db.Close()
	c := newClient(s.token)
	defer c.close()
	create := s.creator(c, d.folders())
	var w written
	for range writeRounds {
		if err := w.round(ctx, create, plain.insert); err != nil {
			return err
		}
	}
	r.faster("create: groups / plain durable inserts",
		rates{a: median(w.ours), b: median(w.theirs), ratio: median(w.ratios)}, 0.08)
	r.under("create: p50", median(w.took).Seconds(), 0, seconds)
	r.under("create: p99", quantile(w.took, 0.99).Seconds(), 0.1, seconds)
	disk, err := syncTime(b.folder)
	if err != nil {
		return err
	}
	r.note("Creating groups: %s of processor time in this process for each, client included. "+
		"A write and sync of 4 KB takes %s on this disk.", brief(w.cpu/created), brief(disk))
	return nil
}

// written is the measurements of all rounds.
type written struct {
	ours, theirs, ratios []float64 // per second
	took                 []time.Duration
	cpu                  time.Duration
}

// round creates some of the groups, and then inserts as many rows.
func (w *written) round(ctx context.Context, create, insert func(context.Context, int64) error) error {
	const n = created / writeRounds
	used, begin := processorTime(), time.Now()
	took, err := spread(ctx, n, create)
	if err != nil {
		return err
	}
	a := n / time.Since(begin).Seconds()
	w.took, w.cpu = append(w.took, took...), w.cpu+processorTime()-used
	begin = time.Now()
	if _, err := spread(ctx, n, insert); err != nil {
		return err
	}
	b := n / time.Since(begin).Seconds()
	w.ours, w.theirs, w.ratios = append(w.ours, a), append(w.theirs, b), append(w.ratios, a/b)
	return nil
}

// spread lets clients call f n times in all, and returns how long each call took.
func spread(ctx context.Context, n int64, f func(context.Context, int64) error) ([]time.Duration, error) {
	var next atomic.Int64
	each := make([]time.Duration, n)
	err := together(clients, func(int) error {
		for {
			i := next.Add(1) - 1
			if i >= n {
				return nil
			}
			begin := time.Now()
			if err := f(ctx, i); err != nil {
				return err
			}
			each[i] = time.Since(begin)
		}
	})
	return each, err
}

// creator returns a function that creates a group with a random name in a random folder.
func (s *service) creator(c *client, folders []resource.UID) func(context.Context, int64) error {
	return func(ctx context.Context, _ int64) error {
		parent := folders[rand.IntN(len(folders))]
		body := fmt.Sprintf(`{"name": "n-%016x", "description": %q}`, rand.Uint64(), description)
		_, _, err := c.do(ctx, http.MethodPost, "http://"+s.addr+"/iam/v2beta1/groups/"+string(parent), body)
		return err
	}
}

// plain is a database with one table of a key and a text.
type plain struct {
	db   *sql.DB
	next atomic.Int64
}

func openPlain(ctx context.Context, e engine) (*plain, error) {
	url, err := empty(ctx, e, "plain")
	if err != nil {
		return nil, err
	}
	db, err := e.connect(url, clients)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE plain (id INTEGER PRIMARY KEY, body TEXT NOT NULL)`)
	return &plain{db: db}, err
}

func (p *plain) insert(ctx context.Context, _ int64) error {
	_, err := p.db.ExecContext(ctx, `INSERT INTO plain (id, body) VALUES ($1, $2)`, p.next.Add(1), description)
	return err
}

// An audit counts what is in the database.
type audit struct {
	rows    int64 // groups below the organization
	counted int64 // according to the counter of the organization
	wrong   int64 // folders with a wrong counter
	events  int64 // of created groups, in the outbox
}

func (d dataset) audit(ctx context.Context, e engine) (a audit, _ error) {
	db, err := e.connect(d.url, 1)
	if err != nil {
		return a, err
	}
	defer db.Close()
	for _, q := range []struct {
		query string
		into  *int64
		args  []any
	}{
		{`SELECT count(*) FROM groups WHERE a1 = $1`, &a.rows, []any{number(d.org)}},
		{`SELECT CAST(sum(n) AS BIGINT) FROM counters WHERE kind = 'groups' AND grp = $1`,
			&a.counted, []any{number(d.org)}},
		{`SELECT count(*)
			FROM (SELECT parent AS grp, count(*) AS n FROM groups WHERE parent IS NOT NULL GROUP BY parent) AS g
			WHERE g.n <> (SELECT coalesce(sum(c.children), 0) FROM counters AS c
				WHERE c.kind = 'groups' AND c.grp = g.grp)`, &a.wrong, nil},
		{`SELECT count(*) FROM outbox WHERE type = $1`, &a.events, []any{string(resource.GroupCreated)}},
	} {
		if err := db.QueryRowContext(ctx, q.query, q.args...).Scan(q.into); err != nil {
			return a, fmt.Errorf("%s: %w", q.query, err)
		}
	}
	return a, nil
}

// syncTime returns how long a small durable write takes.
func syncTime(folder string) (time.Duration, error) {
	f, err := os.CreateTemp(folder, "sync-")
	if err != nil {
		return 0, err
	}
	var all []time.Duration
	for range 200 {
		begin := time.Now()
		_, err := f.Write(make([]byte, 4096))
		if err := errors.Join(err, f.Sync()); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		all = append(all, time.Since(begin))
	}
	return median(all), f.Close()
}
