package engine

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// PostgresConns is the size of the pool of PostgreSQL connections.
const PostgresConns = 32

// Postgres is the Engine for PostgreSQL.
var Postgres = Engine{
	name:      "postgresql",
	Postgres:  true,
	ForUpdate: " FOR NO KEY UPDATE OF t",
	ForDelete: " FOR UPDATE OF t",
	ForShare:  " FOR KEY SHARE OF t",
	ForHold:   " FOR SHARE OF t",
	failure:   postgresFailure,
	Param:     func(n int) string { return "$" + strconv.Itoa(n) },
	Clock:     `CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)`,
	Unnest: func(q Args, values any) string {
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

// sessionSettings apply to every session. They make the text of a statement decide
// its plan (see the lists in package store): the server keeps one plan for each
// statement, and reads indexes row by row. With the default settings it would sort,
// hash or scan tables that look small, because a generic plan does not know the
// values.
var sessionSettings = map[string]string{
	"plan_cache_mode": "force_generic_plan", "jit": "off",
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"lock_timeout": "10s", "statement_timeout": "60s", "idle_in_transaction_session_timeout": "60s",
	"application_name": "holdfastd",
}

// IsPostgres reports whether url is the address of a PostgreSQL database.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// OpenPostgres opens a pool of connections that c makes, and migrates the database up
// to the schema numbered last, or the newest one if last is 0.
func OpenPostgres(ctx context.Context, c *Connector, last int64) (*Database, error) {
	d := &Database{Engine: Postgres, Pool: sql.OpenDB(c)}
	d.close = append(d.close, d.Pool.Close)
	d.committer = newPooled(d)
	d.Pool.SetMaxOpenConns(PostgresConns)
	d.Pool.SetMaxIdleConns(PostgresConns)
	d.Pool.SetConnMaxIdleTime(5 * time.Minute)
	// If another replica is migrating, try again every second, for up to five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("migrate: %w", err), d.Close())
	}
	err = schema.Migrate(ctx, d.Pool, schema.Postgres, last, d.Engine.Fault, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ReadPostgres opens the database at address for reads. It does not change the schema.
func ReadPostgres(address string) (*Database, error) {
	cfg, err := PostgresConfig(address)
	if err != nil {
		return nil, err
	}
	return readOnly(Postgres, stdlib.OpenDB(*cfg)), nil
}

// PostgresConfig returns the configuration of connections to the server at address.
func PostgresConfig(address string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("database: not a PostgreSQL address") // err would quote the password
	}
	for name, value := range sessionSettings {
		cfg.RuntimeParams[name] = value
	}
	cfg.StatementCacheCapacity = 1024
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return cfg, nil
}

// pooled is the committer for PostgreSQL. It commits each write by itself,
// because PostgreSQL already lets concurrent commits share one sync of the disk.
type pooled struct {
	db   *Database
	free chan int // counter shards that no write in this process is using
}

// counterShards is the number of rows that a counter may have. A writer locks one of
// them until its commit is on disk. With several rows, the writers of an
// organization do not queue for one lock. Readers add up the rows.
const counterShards = 16

func newPooled(db *Database) *pooled {
	p := &pooled{db: db, free: make(chan int, counterShards)}
	for i := range counterShards {
		p.free <- i
	}
	return p
}

// shard returns a shard that no other write uses, or a random one if all are in use,
// and the function that releases it.
func (p *pooled) shard() (shard int, release func()) {
	select {
	case shard = <-p.free:
		return shard, func() { p.free <- shard }
	default:
		return rand.IntN(counterShards), func() {}
	}
}

func (p *pooled) run(ctx context.Context, t Transaction) error {
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
	tx.shard, release = p.shard()
	defer release()
	err = t.Run(ctx, tx)
	switch {
	case err == nil:
		span := p.db.Engine.Span(ctx, `COMMIT`)
		err = EndSpan(span, tx.commit(ctx, t.Closing()))
	case errors.Is(err, ErrDryRun):
		_, sendErr := tx.ExecAll(ctx, t.Closing())
		err = cmp.Or(sendErr, err)
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
	on, err := p.db.Pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return on, nil
}

// readOnlyCode is the code of the error that PostgreSQL returns for a write in a read-only session.
const readOnlyCode = "25006"

// ConnectionLost reports whether err means that a connection was lost, or that its
// server no longer accepts writes. Such a server has closed all connections. Each
// idle connection would make one request fail before it is discarded.
func (d *Database) ConnectionLost(err error) bool {
	var e *pgconn.PgError
	return d.Engine.Postgres && // codes that begin with 57P mean that the server has ended the session
		(!errors.As(err, &e) || strings.HasPrefix(e.Code, "57P") || e.Code == readOnlyCode)
}

// DropIdle closes the idle connections of a PostgreSQL pool.
func (d *Database) DropIdle() {
	d.Pool.SetMaxIdleConns(0)
	d.Pool.SetMaxIdleConns(PostgresConns)
}

// raisedCode is the code of the error that RaiseIf causes: a division by zero. No other statement divides.
const raisedCode = "22012"

// RaiseIf returns an expression that makes a statement on PostgreSQL fail if a condition is true. A transaction whose
// last statements are sent together with the commit has no other way to prevent the commit.
func RaiseIf(condition string) string { return `1 / (CASE WHEN ` + condition + ` THEN 0 ELSE 1 END)` }

// IsRaised reports whether a statement failed because of RaiseIf.
func IsRaised(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == raisedCode
}

func postgresFailure(err error) Failure {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		var n net.Error
		var c *pgconn.ConnectError
		if errors.As(err, &c) { // also if the attempt to connect timed out, because its deadline is ours
			return Outage
		}
		if errors.Is(err, context.DeadlineExceeded) { // the deadline belongs to the caller
			return Bug
		}
		if errors.As(err, &n) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) ||
			err != nil && (strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "unexpected EOF")) {
			return Outage
		}
		return Bug
	}
	switch e.Code {
	case "23505":
		return Duplicate
	case "23503":
		return Dangling
	case "40001", "40P01": // serialization failure, deadlock
		return Conflict
	case "55P03", "57014": // lock not available, statement timeout
		return Outage
	case readOnlyCode: // the server is a standby
		return Outage
	}
	switch e.Code[:2] {
	case "08", "53", "57", "58": // lost connection, lack of resources, shutdown, system error
		return Outage
	}
	return Bug
}
