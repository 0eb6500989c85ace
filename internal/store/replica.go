package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	leaseLength = 2 * time.Second
	leaseWait   = leaseLength + leaseLength/10 // as long, by a clock that goes a little faster

	pollMin    = 500 * time.Microsecond // between queries for replicas that are behind;
	pollMax    = 20 * time.Millisecond  // the pause doubles up to this
	leaveLimit = 2 * time.Second        // for deleting the row of this process when it ends

	replicasKept = 10 * time.Minute // after their last heartbeat
	replicaConns = 2                // one to listen
)

// A Lease is the time for which a process may rely on what it has cached of a
// database that others write to. It begins when Renew is called, and ends by itself.
type Lease struct{ began atomic.Pointer[time.Time] }

// Begin starts the lease at a time before Renew was called, once the changes that
// Renew reported have been applied.
func (t *Lease) Begin(at time.Time) { t.began.Store(&at) }

// Valid reports whether the lease has not ended. While a machine sleeps, its
// monotonic clock may stop and its wall clock does not, so both are compared.
func (t *Lease) Valid(now time.Time) bool {
	at := t.began.Load()
	return at != nil && now.Sub(*at) < leaseLength && now.Round(0).Sub(at.Round(0)) < leaseLength
}

// A replica is this process among those that share a database. They answer from
// memory, and yet no write returns before all of them know of the change:
//
//   - A replica writes a heartbeat, with the revision it has applied, and reads
//     changes only when that is committed. When it has applied them, its lease
//     begins, at the time before the heartbeat.
//   - A writer commits its change, and only then reads which replicas there are.
//     It returns when each of those has applied the change, or its lease has
//     ended. A replica that it does not find, or not with its latest heartbeat,
//     has yet to read changes, and will find this one.
//
// The clocks of two replicas need not agree; they only have to run about equally
// fast.
type replica struct {
	s     *DB
	db    *sql.DB // its own connections, so that it does not wait behind reads and writes
	id    string
	lease Lease                     // of the caches
	lag   atomic.Int64              // revisions that were not applied when it renewed
	heard atomic.Pointer[time.Time] // when it renewed last; nil before
	clock atomic.Pointer[clockReading]

	renewing  sync.Mutex // held while it renews
	heartbeat int64      // the number of its last heartbeat
	revision  int64      // at which the caches were cleared last

	past historian

	mu    sync.Mutex // guards what is below; never held during I/O
	peers map[string]peer
	stop  context.CancelFunc // ends ListenGrants; nil before the first
}

// A peer is the latest heartbeat of another replica, and when it was first read
// here.
type peer struct {
	heartbeat int64
	since     time.Time
}

func newReplica(s *DB, cfg *pgx.ConnConfig) *replica {
	r := &replica{s: s, id: rand.Text(), revision: -1, peers: map[string]peer{}}
	r.past.pool = newConnector(cfg, r.past.validate(false))
	r.db = sql.OpenDB(newConnector(cfg, r.past.validate(true)))
	r.db.SetMaxOpenConns(replicaConns)
	return r
}

// Renew writes a heartbeat that says that this replica has applied the changes up to
// a position, clears the caches of the stores if there are newer ones, and returns the
// newest position. If that is another, Renew should be called again soon, because a
// writer waits until the change has been applied. If it is in another history, all that
// was read from the database must be read again.
func (s *DB) Renew(ctx context.Context, applied Position) (newest Position, err error) {
	if !s.Engine.Postgres {
		newest.Revision, err = s.Revision(ctx)
		return newest, err
	}
	return s.replica.renew(ctx, applied)
}

func (r *replica) renew(ctx context.Context, applied Position) (newest Position, _ error) {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	newest.History = r.past.changes.Load()
	if applied.History == newest.History {
		r.past.revision = max(r.past.revision, applied.Revision)
	} else {
		applied.Revision = -1 // of this history it has applied nothing
	}
	if applied.Revision > r.revision { // before a writer is told that this replica has applied it
		r.s.clearCaches()
		r.revision = applied.Revision
	}
	began := time.Now()
	found, err := r.announce(ctx, applied.Revision)
	if err != nil {
		return Position{}, r.s.outcome(err)
	}
	if err := r.check(ctx, found); err != nil {
		return Position{}, err
	}
	if err := r.db.QueryRowContext(ctx, revisionQuery).Scan(&newest.Revision); err != nil {
		return Position{}, r.s.outcome(err)
	}
	if newest.Revision != r.revision {
		r.s.clearCaches()
		r.revision = newest.Revision
	}
	r.lease.Begin(began)
	r.lag.Store(newest.Revision - applied.Revision)
	r.heard.Store(&began)
	return newest, r.readPeers(ctx)
}

// announce writes a heartbeat and returns the state of the database just before. The
// first time it deletes replicas that have not written one for long.
func (r *replica) announce(ctx context.Context, revision int64) (found sighting, _ error) {
	if r.heartbeat == 0 {
		if _, err := r.db.ExecContext(ctx, `DELETE FROM replicas WHERE renew_ms < `+r.s.Engine.Clock+` - $1`,
			replicasKept.Milliseconds()); err != nil {
			return found, err
		}
	}
	r.heartbeat++
	var ms int64
	asked := time.Now()
	err := r.db.QueryRowContext(ctx,
		`INSERT INTO replicas (id, beat, renew_ms, grants_at) VALUES ($1, $2, `+r.s.Engine.Clock+`, $3)
		ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, renew_ms = excluded.renew_ms, grants_at = excluded.grants_at
		RETURNING `+r.past.expression+`, (`+revisionQuery+`), (SELECT coalesce(max(seq), 0) FROM outbox), `+r.s.Engine.Clock,
		r.id, r.heartbeat, revision).Scan(&found.history, &found.revision, &found.event, &ms)
	if err == nil {
		r.clock.Store(&clockReading{FromMS(ms), asked, time.Now()})
	}
	return found, err
}

// readPeers reads the latest heartbeats of the others, so that a write does not
// wait for a replica that has stopped.
func (r *replica) readPeers(ctx context.Context) error {
	beats, err := r.heartbeats(ctx, r.rows, ``)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	peers := map[string]peer{}
	for id, beat := range beats {
		peers[id] = r.peer(id, beat)
	}
	r.peers = peers // without those that have left
	return nil
}

// heartbeats reads the latest heartbeats of the other replicas that a condition
// selects.
func (r *replica) heartbeats(ctx context.Context, read Reader, which string, args ...any) (map[string]int64, error) {
	return ReadMap[string, int64](ctx, read, `SELECT id, beat FROM replicas WHERE id <> $1`+which, append([]any{r.id},
		args...)...)
}

// peer returns the state of a replica whose latest heartbeat is given.
func (r *replica) peer(id string, beat int64) peer {
	if w, ok := r.peers[id]; ok && w.heartbeat == beat {
		return w
	}
	return peer{beat, time.Now()}
}

// waitForPeers returns when every other replica has applied the changes up to a
// revision, which is committed, or has lost its lease. That takes no longer than a
// lease, even if the database no longer answers.
func (r *replica) waitForPeers(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
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

// behind reports whether a replica whose lease may not have ended has yet to apply
// a change.
func (r *replica) behind(ctx context.Context, revision int64) (behind bool, _ error) {
	beats, err := r.heartbeats(ctx, r.s.Rows, ` AND grants_at < $2`, revision)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, beat := range beats {
		p := r.peer(id, beat)
		r.peers[id] = p
		behind = behind || time.Since(p.since) < leaseWait
	}
	return behind, nil
}

// stopListening ends ListenGrants, so that it is called again and finds another
// connection.
func (r *replica) stopListening() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.stop()
	}
}

// rows is DB.Rows over the replica's own connections.
func (r *replica) rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	rows, err := r.db.QueryContext(ctx, query, args...)
	return r.s.outcome(scan(query, rows, err, f))
}

// Replicas returns how many processes share the database, as far as this one knows.
func (s *DB) Replicas() int {
	if !s.Engine.Postgres {
		return 1
	}
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	n := 1
	for _, p := range s.replica.peers {
		if time.Since(p.since) < leaseWait {
			n++
		}
	}
	return n
}

// leave deletes the row of this process, which is about to end.
func (r *replica) leave() error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	r.lease.began.Store(nil)
	if r.heartbeat == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_, _ = r.db.ExecContext(ctx, `DELETE FROM replicas WHERE id = $1`, r.id) // if it fails, its lease ends by itself
	return nil
}
