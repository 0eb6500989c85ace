package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const postgresConns = 32

var postgresEngine = engine{
	shared:  true,
	lock:    " FOR NO KEY UPDATE OF t",
	lockKey: " FOR UPDATE OF t",
	hold:    " FOR KEY SHARE OF t",
	schema:  postgresSchema,
	failure: postgresFailure,
	each: func(q *query, values any) string {
		kind := "text"
		if _, ok := values.([]int64); ok {
			kind = "bigint"
		}
		return `(SELECT i - 1 AS i, v FROM unnest(` + q.arg(values) + `::` + kind + `[]) WITH ORDINALITY AS u (v, i))`
	},
	shards: 8, // so that writers do not queue on the organization's row
}

// postgresSchema writes a migration in PostgreSQL's words: text is ordered by
// its bytes, as in SQLite, and counters leave room to be updated in place.
func postgresSchema(text string) string {
	text = strings.ReplaceAll(text, " TEXT ", ` TEXT COLLATE "C" `)
	return strings.ReplaceAll(text, "  PRIMARY KEY (kind, grp, shard)\n)", "  PRIMARY KEY (kind, grp, shard)\n) WITH (fillfactor = 50)")
}

// settings are those of every session. Plans are chosen in list.go, one for each
// statement, for good: the server is told to keep them, and to walk indexes row
// by row. It would rather sort, hash or scan what looks small to it, because it
// does not know the values.
var settings = map[string]string{
	"plan_cache_mode": "force_generic_plan", "jit": "off",
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"lock_timeout": "10s", "statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s",
	"application_name": "holdfastd",
}

// openPostgres connects to the server at address.
func (s *Store) openPostgres(ctx context.Context, address string) error {
	s.engine = postgresEngine
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return errors.New("database: not a PostgreSQL address") // the error would quote the password
	}
	for name, value := range settings {
		cfg.RuntimeParams[name] = value
	}
	cfg.StatementCacheCapacity = 1024
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	s.read = stdlib.OpenDB(*cfg)
	s.close = append(s.close, s.read.Close)
	s.read.SetMaxOpenConns(postgresConns)
	s.read.SetMaxIdleConns(postgresConns)
	s.read.SetConnMaxIdleTime(5 * time.Minute)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // another replica migrates: look every second, for five minutes
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	s.commit = pooled{s}
	return s.migrate(ctx, s.read, goose.DialectPostgres, goose.WithSessionLocker(locker))
}

// ListenGrants calls f whenever any process has changed grants, until ctx ends
// or the connection does.
func (s *Store) ListenGrants(ctx context.Context, f func()) error {
	if !s.engine.shared {
		<-ctx.Done()
		return ctx.Err()
	}
	on, err := s.read.Conn(ctx)
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
		return notOne
	case "23503":
		return dangling
	case "40001", "40P01": // serialization failure, deadlock
		return contest
	case "55P03", "57014": // lock not available, statement timeout
		return outage
	case "25006": // read-only: a standby
		return outage
	}
	switch e.Code[:2] {
	case "08", "53", "57", "58": // connection, resources, shutting down, system
		return outage
	}
	return broken
}
