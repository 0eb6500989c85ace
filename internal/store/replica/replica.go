// Package replica coordinates the processes that share a PostgreSQL database. They
// answer from memory, and yet a write returns only when every process has applied it.
// The package also detects that the database is no longer a continuation of the one
// that the process has read, because a standby was promoted or a back-up was
// restored. It calls that a change of the database's history: see Position.
package replica

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

const (
	leaseLength = 2 * time.Second

	// LeaseWait is how long to wait for the end of another process's lease. It is longer than a
	// lease, because the clock of the other process may be slower.
	LeaseWait = leaseLength + leaseLength/10

	pollMin    = 500 * time.Microsecond // first pause between queries for replicas that are behind
	pollMax    = 20 * time.Millisecond  // longest pause; each is twice as long as the one before
	leaveLimit = 2 * time.Second        // the longest time for deleting the row of this process when it ends

	replicasKept = 10 * time.Minute // a replica's row is deleted this long after its last heartbeat
	replicaConns = 2                // connections of a Replica; one of them is for Listen
)

// GrantsRow is the id of a row in the table revision. The row counts the changes that
// replicas apply. The package store names the other rows.
const GrantsRow = 1

// RevisionQuery selects the newest revision.
var RevisionQuery = `SELECT rev FROM revision WHERE id = ` + strconv.Itoa(GrantsRow)

// A Lease is the time during which a process may rely on its caches of a database that
// other processes write to. It begins when Renew is called, and ends by itself.
type Lease struct{ began atomic.Pointer[time.Time] }

// Begin starts the lease. start is a time before the call of Renew. The caller
// must have applied the changes that Renew reported.
func (l *Lease) Begin(start time.Time) { l.began.Store(&start) }

// Valid reports whether the lease has not ended. While a machine sleeps, its monotonic
// clock may stop, but its wall clock does not, so both are compared.
func (l *Lease) Valid(now time.Time) bool {
	start := l.began.Load()
	return start != nil && now.Sub(*start) < leaseLength && now.Round(0).Sub(start.Round(0)) < leaseLength
}

// A Replica is this process among the processes that share a database:
//
//   - A replica writes a heartbeat with the revision that it has applied, and reads
//     changes only after the heartbeat is committed. When it has applied them, its
//     lease begins, dated before the heartbeat.
//   - A writer commits its change, and only then reads the list of replicas. It
//     returns when each of them has applied the change, or its lease has ended. If
//     the writer does not find a replica, or not its latest heartbeat, then that
//     replica has yet to read changes, and will find this one.
//
// The clocks of two replicas need not agree. They only have to run about equally fast.
type Replica struct {
	hooks Hooks
	db    *sql.DB // has its own connections, so that it does not wait for reads and writes
	id    string
	lease Lease                     // while it lasts, the caches are valid
	lag   atomic.Int64              // revisions that were not applied at the last renewal
	heard atomic.Pointer[time.Time] // when the lease was last renewed; nil before the first renewal
	clock atomic.Pointer[ClockReading]

	renewing  sync.Mutex // held during a renewal
	heartbeat int64      // number of the last heartbeat
	revision  int64      // revision at which the caches were cleared last

	past historyWatch

	mu    sync.Mutex // guards the fields below; never held during I/O
	peers map[string]peer
	stop  context.CancelFunc // ends Listen; nil before the first call
}

// Hooks connect a Replica to the store that it belongs to.
type Hooks struct {
	Knows int64 // number of the last migration that this program knows

	// ReadHeartbeats runs a query on a connection of the store's pool and
	// returns the heartbeats that it selects, by replica id.
	ReadHeartbeats func(ctx context.Context, query string, args ...any) (map[string]int64, error)

	Fault          func(error) error   // turns a driver's error into a fault
	ClearCaches    func()              // called when the revision has moved
	HistoryChanged func()              // called when everything cached or connected is invalid, see Position
	Log            func() *slog.Logger // for the operator
}

// A ClockReading is a time that the database reported, with the times at which this
// process requested and received it.
type ClockReading struct{ Time, Requested, Received time.Time }

// A peer is the latest heartbeat of another replica, and when it was first read here.
type peer struct {
	heartbeat int64
	since     time.Time
	knows     int64 // number of the last migration that its program knows; 0 if that was not read yet
}

// New returns a Replica of the database that cfg connects to. Call Start before use.
func New(cfg *pgx.ConnConfig, hooks Hooks) *Replica {
	r := &Replica{hooks: hooks, id: rand.Text(), revision: -1, peers: map[string]peer{}}
	r.past.pool = engine.NewConnector(cfg, r.past.validate(false))
	r.db = sql.OpenDB(engine.NewConnector(cfg, r.past.validate(true)))
	r.db.SetMaxOpenConns(replicaConns)
	return r
}

// Connector returns the connector for the pool of reads and writes. It connects
// only to servers whose history is the one that this process knows.
func (r *Replica) Connector() *engine.Connector { return r.past.pool }

// Valid reports whether the caches of this process agree with the database.
func (r *Replica) Valid(now time.Time) bool { return r.lease.Valid(now) }

// Clock returns the time of the database at the last heartbeat, or nil.
func (r *Replica) Clock() *ClockReading { return r.clock.Load() }

// Lag returns how many revisions this process had not applied at the last renewal, and
// how long ago that was. ok is false before the first renewal.
func (r *Replica) Lag() (revisions int64, age time.Duration, ok bool) {
	heard := r.heard.Load()
	if heard == nil {
		return 0, 0, false
	}
	return r.lag.Load(), time.Since(*heard), true
}

// Renew writes a heartbeat that says that this replica has applied the changes up to a
// position. It clears the caches of the store if there are newer changes, and returns
// the newest position. If the newest position differs from applied, the caller should
// call Renew again soon, because a writer waits until the change has been applied. If
// the newest position is in another history, everything that was read from the
// database must be read again.
func (r *Replica) Renew(ctx context.Context, applied Position) (newest Position, _ error) {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	newest.History = r.past.changes.Load()
	if applied.History == newest.History {
		r.past.revision = max(r.past.revision, applied.Revision)
	} else {
		applied.Revision = -1 // this replica has applied no change in the new history
	}
	// clear the caches before a writer learns that this replica has applied the change
	if applied.Revision > r.revision {
		r.hooks.ClearCaches()
		r.revision = applied.Revision
	}
	began := time.Now()
	found, err := r.announce(ctx, applied.Revision)
	if err != nil {
		return Position{}, r.hooks.Fault(err)
	}
	if err := r.check(ctx, found); err != nil {
		return Position{}, err
	}
	if err := r.db.QueryRowContext(ctx, RevisionQuery).Scan(&newest.Revision); err != nil {
		return Position{}, r.hooks.Fault(err)
	}
	if newest.Revision != r.revision {
		r.hooks.ClearCaches()
		r.revision = newest.Revision
	}
	r.lease.Begin(began)
	r.lag.Store(newest.Revision - applied.Revision)
	r.heard.Store(&began)
	return newest, r.readPeers(ctx)
}

// announce writes a heartbeat and returns the state of the database just before it. The
// first call deletes replicas that have not written a heartbeat for a long time.
func (r *Replica) announce(ctx context.Context, revision int64) (found observation, _ error) {
	clock := engine.Postgres.Clock
	if r.heartbeat == 0 {
		if _, err := r.db.ExecContext(ctx, `DELETE FROM replicas WHERE renew_ms < `+clock+` - $1`,
			replicasKept.Milliseconds()); err != nil {
			return found, err
		}
	}
	r.heartbeat++
	var ms int64
	requested := time.Now()
	err := r.db.QueryRowContext(ctx,
		`INSERT INTO replicas (id, beat, renew_ms, grants_at, knows) VALUES ($1, $2, `+clock+`, $3, $4)
		ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, renew_ms = excluded.renew_ms, grants_at = excluded.grants_at
		RETURNING `+r.past.expression+`, (`+RevisionQuery+`), (SELECT coalesce(max(seq), 0) FROM outbox), `+clock,
		r.id, r.heartbeat, revision, r.hooks.Knows).Scan(&found.history, &found.revision, &found.event, &ms)
	if err == nil {
		r.clock.Store(&ClockReading{time.UnixMilli(ms).UTC(), requested, time.Now()})
	}
	return found, err
}

// readPeers reads the latest heartbeats of the other replicas, so that a write does not
// wait for a replica that has stopped.
func (r *Replica) readPeers(ctx context.Context) error {
	rows, err := r.db.QueryContext(ctx, `SELECT id, beat, knows FROM replicas WHERE id <> $1`, r.id)
	if err != nil {
		return r.hooks.Fault(err)
	}
	defer rows.Close()
	read := map[string]peer{}
	for rows.Next() {
		var id string
		var p peer
		if err := rows.Scan(&id, &p.heartbeat, &p.knows); err != nil {
			return r.hooks.Fault(err)
		}
		read[id] = p
	}
	if err := rows.Err(); err != nil {
		return r.hooks.Fault(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	peers := map[string]peer{}
	for id, p := range read {
		known := r.peer(id, p.heartbeat)
		known.knows = p.knows
		peers[id] = known
	}
	r.peers = peers // drops the replicas that have left
	return nil
}

// peer returns the state of the replica id. beat is its latest heartbeat.
func (r *Replica) peer(id string, beat int64) peer {
	p := r.peers[id]
	if p.heartbeat != beat || p.since.IsZero() {
		p.heartbeat, p.since = beat, time.Now()
	}
	return p
}

// WaitForPeers waits until every other replica has applied the changes up to a
// committed revision, or has lost its lease. It takes no longer than a lease, even if
// the database no longer answers.
func (r *Replica) WaitForPeers(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, LeaseWait)
	defer cancel()
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		if behind, err := r.behind(ctx, revision); err == nil && !behind {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// behind reports whether any other replica has not applied the revision yet,
// although its lease may still be valid.
func (r *Replica) behind(ctx context.Context, revision int64) (behind bool, _ error) {
	heartbeats, err := r.hooks.ReadHeartbeats(ctx,
		`SELECT id, beat FROM replicas WHERE id <> $1 AND grants_at < $2`, r.id, revision)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, beat := range heartbeats {
		p := r.peer(id, beat)
		r.peers[id] = p
		behind = behind || time.Since(p.since) < LeaseWait
	}
	return behind, nil
}

// Count returns how many processes share the database, according to their heartbeats.
func (r *Replica) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 1
	for _, p := range r.peers {
		if time.Since(p.since) < LeaseWait {
			n++
		}
	}
	return n
}

// Oldest returns the number of the last migration that the programs of all replicas know.
// A replica without heartbeats counts for replicasKept, because it may only be paused.
func (r *Replica) Oldest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.hooks.Knows
	for _, p := range r.peers {
		if time.Since(p.since) < replicasKept {
			oldest = min(oldest, p.knows)
		}
	}
	return oldest
}

// Listen calls f whenever a process has changed data that others cache. It returns
// when ctx or the connection ends, or when the history of the database changes.
func (r *Replica) Listen(ctx context.Context, f func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.stop = cancel
	r.mu.Unlock()
	on, err := r.db.Conn(ctx)
	if err != nil {
		return r.hooks.Fault(err)
	}
	defer on.Close()
	return r.hooks.Fault(on.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn()
		if _, err := pg.Exec(ctx, `LISTEN holdfast_grants`); err != nil {
			return err
		}
		for {
			if _, err := pg.WaitForNotification(ctx); err != nil {
				return errors.Join(driver.ErrBadConn, err) // the connection still listens, so it must not be used again
			}
			f()
		}
	}))
}

// DropIdle closes the idle connections, and ends Listen, so that the next call gets
// another connection.
func (r *Replica) DropIdle() {
	r.db.SetMaxIdleConns(0)
	r.db.SetMaxIdleConns(replicaConns)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.stop()
	}
}

// Close deletes the row of this process and closes the connections.
func (r *Replica) Close() error {
	r.leave()
	return r.db.Close()
}

// leave deletes the row of this process, so that writers do not wait for it.
func (r *Replica) leave() {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	r.lease.began.Store(nil)
	if r.heartbeat == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_, _ = r.db.ExecContext(ctx, `DELETE FROM replicas WHERE id = $1`, r.id) // if this fails, the lease ends by itself
}
