package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

const postgresConns = 32

var postgresEngine = Engine{
	name:      "postgresql",
	Postgres:  true,
	ForUpdate: " FOR NO KEY UPDATE OF t",
	ForDelete: " FOR UPDATE OF t",
	ForShare:  " FOR KEY SHARE OF t",
	schema:    postgresSchema,
	failure:   postgresFailure,
	Param:     func(n int) string { return "$" + itoa(n) },
	Clock:     `CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)`,
	Unnest: func(q *Query, values any) string {
		kind := "text"
		if _, ok := values.([]int64); ok {
			kind = "bigint"
		}
		return `(SELECT i - 1 AS i, v FROM unnest(` + q.Arg(values) + `::` + kind + `[]) WITH ORDINALITY AS u (v, i))`
	},
	Lookup: func(table, condition string) string {
		return ` CROSS JOIN LATERAL (SELECT * FROM ` + table + ` AS t WHERE ` + condition + ` OFFSET 0) AS t`
	},
}

// postgresSchema writes a migration in PostgreSQL's words: text is ordered by
// its bytes, as in SQLite, and counters leave room to be updated in place.
func postgresSchema(text string) string {
	text = onlyFor("postgresql", text)
	text = strings.ReplaceAll(text, " TEXT ", ` TEXT COLLATE "C" `)
	return strings.ReplaceAll(text, "  PRIMARY KEY (kind, grp, shard)\n)",
		"  PRIMARY KEY (kind, grp, shard)\n) WITH (fillfactor = 50)")
}

// settings are those of every session. The plan of every statement is decided in
// list.go: the server keeps one plan for each, and walks indexes row by row.
// Otherwise it would sort, hash or scan what looks small, because it does not
// know the values.
var settings = map[string]string{
	"plan_cache_mode": "force_generic_plan", "jit": "off",
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"lock_timeout": "10s", "statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s",
	"application_name": "holdfastd",
}

// openPostgres connects to the server at address.
func (s *DB) openPostgres(ctx context.Context, address string) error {
	s.Engine = postgresEngine
	cfg, err := postgresConfig(address)
	if err != nil {
		return err
	}
	s.replica = newReplica(s, cfg)
	s.read = sql.OpenDB(s.replica.past.pool)
	s.close = append(s.close, s.read.Close, s.replica.db.Close, s.replica.leave)
	s.read.SetMaxOpenConns(postgresConns)
	s.read.SetMaxIdleConns(postgresConns)
	s.read.SetConnMaxIdleTime(5 * time.Minute)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1,
		300)) // another replica migrates: look every second, for five minutes
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	s.commit = newPooled(s)
	if err := s.migrate(ctx, s.read, goose.DialectPostgres, goose.WithSessionLocker(locker)); err != nil {
		return err
	}
	return s.replica.begin(ctx)
}

// postgresConfig returns how to connect to the server at address.
func postgresConfig(address string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("database: not a PostgreSQL address") // the error would quote the password
	}
	for name, value := range settings {
		cfg.RuntimeParams[name] = value
	}
	cfg.StatementCacheCapacity = 1024
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return cfg, nil
}

// A pooled committer commits each write by itself, because PostgreSQL lets
// concurrent commits share a sync of the disk already.
type pooled struct {
	s    *DB
	free chan int // shards of counters that no write of this process has
}

// counterShards is how many rows a counter may have. A writer locks one until the
// disk has synced; with several, the writers of an organization do not queue for
// it. A reader adds them up.
const counterShards = 16

func newPooled(s *DB) *pooled {
	p := &pooled{s: s, free: make(chan int, counterShards)}
	for i := range counterShards {
		p.free <- i
	}
	return p
}

// shard returns a shard that no other write has, or any if there is none, and the
// function that releases it.
func (p *pooled) shard() (shard int, release func()) {
	select {
	case shard = <-p.free:
		return shard, func() { p.free <- shard }
	default:
		return rand.IntN(counterShards), func() {}
	}
}

// run releases its connection before it notifies others and waits for them,
// because they may need one themselves.
func (p *pooled) run(ctx context.Context, f func(*Tx) error) error {
	t := &Tx{DB: p.s, traced: ctx}
	if err := p.transact(ctx, t, f); err != nil {
		return err
	}
	if t.revision > 0 {
		p.s.notify(context.WithoutCancel(ctx), t.revision)
		span := trace.Leaf(ctx, "wait for replicas")
		p.s.replica.waitForPeers(ctx, t.revision)
		if ctx.Err() == nil {
			p.s.settled.Store(t.revision)
		}
		span.End(nil)
	}
	return nil
}

func (p *pooled) transact(ctx context.Context, t *Tx, f func(*Tx) error) error {
	on, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer on.Close()
	tx, err := newPostgresTx(on)
	if err != nil {
		return err
	}
	var release func()
	t.Shard, release = p.shard()
	defer release()
	t.on = tx
	if err = f(t); err == nil {
		err = t.finish(ctx)
	}
	switch {
	case err == nil:
		span := p.s.span(ctx, `COMMIT`)
		err = endSpan(span, tx.commit(ctx, t.closing()))
	case errors.Is(err, errDryRun):
		err = cmp.Or(tx.send(ctx, t.closing()), err)
	}
	if err != nil {
		tx.rollback(ctx)
	}
	return err
}

// connect waits for a connection.
func (p *pooled) connect(ctx context.Context) (_ *sql.Conn, err error) {
	span := trace.Leaf(ctx, "wait for a connection")
	defer func() { span.End(err) }()
	on, err := p.s.read.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return on, nil
}

// closing returns the statements that a transaction ends with. The counters come
// last, because their locks are held until the commit.
func (t *Tx) closing() []Statement {
	all := slices.Clone(t.queued)
	if len(t.events) > 0 {
		all = append(all, outboxStatement(t.events))
	}
	if len(t.increments) > 0 {
		all = append(all, counterStatement(t.increments, t.Shard))
	}
	return all
}

// dropDead closes the idle connections if err says that a connection was lost, or
// that its server takes no writes any more: a server that went away closed all of them,
// and each would fail a request before it is noticed.
func (s *DB) dropDead(err error) {
	var e *pgconn.PgError
	if !s.Engine.Postgres ||
		errors.As(err, &e) && !strings.HasPrefix(e.Code, "57P") && e.Code != readOnly { // 57P: the session was ended
		return
	}
	s.dropIdle()
}

// readOnly is the code of an error that says that a session cannot write.
const readOnly = "25006"

// dropIdle closes the idle connections, and that of ListenGrants.
func (s *DB) dropIdle() {
	s.read.SetMaxIdleConns(0)
	s.read.SetMaxIdleConns(postgresConns)
	if r := s.replica; r != nil {
		r.db.SetMaxIdleConns(0)
		r.db.SetMaxIdleConns(replicaConns)
		r.stopListening()
	}
}

// ListenGrants calls f whenever a process has changed grants, or anything else that
// others cache, until ctx or the connection ends, or the history of the database
// changes.
func (s *DB) ListenGrants(ctx context.Context, f func()) error {
	if !s.Engine.Postgres {
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.replica.mu.Lock()
	s.replica.stop = cancel
	s.replica.mu.Unlock()
	on, err := s.replica.db.Conn(ctx)
	if err != nil {
		return s.outcome(err)
	}
	defer on.Close()
	return s.outcome(on.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn()
		if _, err := pg.Exec(ctx, `LISTEN holdfast_grants`); err != nil {
			return err
		}
		for {
			if _, err := pg.WaitForNotification(ctx); err != nil {
				return errors.Join(driver.ErrBadConn, err) // it still listens: do not use it again
			}
			f()
		}
	}))
}

func postgresFailure(err error) failure {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		var n net.Error
		var c *pgconn.ConnectError
		if errors.As(err, &c) { // also if it took too long: that deadline is ours
			return outage
		}
		if errors.Is(err, context.DeadlineExceeded) { // the caller's
			return broken
		}
		if errors.As(err, &n) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) ||
			err != nil && (strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "unexpected EOF")) {
			return outage
		}
		return broken
	}
	switch e.Code {
	case "23505":
		return duplicate
	case "23503":
		return dangling
	case "40001", "40P01": // serialization failure, deadlock
		return conflict
	case "55P03", "57014": // lock not available, statement timeout
		return outage
	case readOnly: // a standby
		return outage
	}
	switch e.Code[:2] {
	case "08", "53", "57", "58": // connection, resources, shutting down, system
		return outage
	}
	return broken
}
