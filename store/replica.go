package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

const (
	leaseLength = 2 * time.Second
	leaseWait   = leaseLength + leaseLength/10 // as long, by a clock that goes a little faster

	pollMin    = 500 * time.Microsecond // between looks at who is still behind,
	pollMax    = 20 * time.Millisecond  // each twice the one before
	leaveLimit = 2 * time.Second        // for saying that this process ends

	replicasKept = 10 * time.Minute // after their last word
)

// A Term is the time for which a process may rely on what it knows of a database
// that others write to. It begins when Renew is called, and ends by itself.
type Lease struct{ began atomic.Pointer[time.Time] }

// Begin has the term begin at the time before Renew was called, once all it
// told of is taken in.
func (t *Lease) Begin(at time.Time) { t.began.Store(&at) }

// Holds tells whether the term lasts. A machine that was asleep has a clock that
// stood still and one that did not: both are asked.
func (t *Lease) Valid(now time.Time) bool {
	at := t.began.Load()
	return at != nil && now.Sub(*at) < leaseLength && now.Round(0).Sub(at.Round(0)) < leaseLength
}

// A replica is this process among those that share a database. They answer from
// memory, and yet nobody is told of a change before all of them know it:
//
//   - A replica writes that it is there, and what it has taken in, and only when
//     that is committed asks for changes. When it has taken them in, its term
//     begins, at the time before it wrote.
//   - Who makes a change commits it, and only then looks who is there. Before it
//     returns, each of those has taken the change in, or its term has ended. A
//     replica it does not find there, or not with its latest word, has still to
//     ask for changes, and will find this one.
//
// No two clocks have to agree, only to go about equally fast.
type replica struct {
	s     *DB
	db    *sql.DB // of its own: it is not to wait behind those who read and write
	id    string
	lease Lease // of the caches

	renewing  sync.Mutex // to renew
	heartbeat int64      // how often it has said that it is there
	revision  int64      // at which the caches were cleared last

	mu    sync.Mutex // guards what is below; never held during I/O
	peers map[string]peer
}

// A word is the latest of another replica, and when it was first heard here.
type peer struct {
	heartbeat int64
	since     time.Time
}

func newReplica(s *DB, db *sql.DB) *replica {
	db.SetMaxOpenConns(2) // one to listen
	return &replica{s: s, db: db, id: rand.Text(), revision: -1, peers: map[string]peer{}}
}

// Renew tells the other replicas that this one is there and has taken in the
// changes up to a revision, clears the caches of the store if there were newer
// ones, and returns the newest. If that is another, it should be called again
// soon, for somebody waits to hear that the change was taken in.
func (s *DB) Renew(ctx context.Context, revision int64) (newest int64, err error) {
	if !s.Engine.Postgres {
		return s.Revision(ctx)
	}
	return s.replica.renew(ctx, revision)
}

func (r *replica) renew(ctx context.Context, revision int64) (newest int64, _ error) {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	began := time.Now()
	if err := r.announce(ctx, revision); err != nil {
		return 0, r.s.outcome(err)
	}
	if err := r.db.QueryRowContext(ctx, revisionQuery).Scan(&newest); err != nil {
		return 0, r.s.outcome(err)
	}
	if newest != r.revision {
		r.s.clearCaches()
		r.revision = newest
	}
	r.lease.Begin(began)
	return newest, r.readPeers(ctx)
}

// say writes that this replica is there. The first time it clears away those
// that have not been for long.
func (r *replica) announce(ctx context.Context, revision int64) error {
	if r.heartbeat == 0 {
		if _, err := r.db.ExecContext(ctx, `DELETE FROM replicas WHERE renew_ms < `+r.s.Engine.Clock+` - $1`, replicasKept.Milliseconds()); err != nil {
			return err
		}
	}
	r.heartbeat++
	_, err := r.db.ExecContext(ctx, `INSERT INTO replicas (id, beat, renew_ms, grants_at) VALUES ($1, $2, `+r.s.Engine.Clock+`, $3)
		ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, renew_ms = excluded.renew_ms, grants_at = excluded.grants_at`, r.id, r.heartbeat, revision)
	return err
}

// listen notes the latest word of the others, so that one that is silent need
// not be waited for.
func (r *replica) readPeers(ctx context.Context) error {
	found, err := r.heartbeats(ctx, r.rows, ``)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	others := map[string]peer{}
	for id, beat := range found {
		others[id] = r.peer(id, beat)
	}
	r.peers = others // without those that have left
	return nil
}

// words reads the beats of the other replicas, or of some.
func (r *replica) heartbeats(ctx context.Context, read Reader, which string, args ...any) (map[string]int64, error) {
	found := map[string]int64{}
	err := read(ctx, `SELECT id, beat FROM replicas WHERE id <> $1`+which, append([]any{r.id}, args...), func(row Scanner) (bool, error) {
		var id string
		var beat int64
		err := row.Scan(&id, &beat)
		found[id] = beat
		return false, err
	})
	return found, err
}

// hear returns the latest word of a replica, which has this beat.
func (r *replica) peer(id string, beat int64) peer {
	if w, ok := r.peers[id]; ok && w.heartbeat == beat {
		return w
	}
	return peer{beat, time.Now()}
}

// await returns when every other replica has taken in the changes up to a
// revision, which is committed, or can rely no longer on what it knew before.
// That takes no longer than a term, even if the database no longer answers.
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

// behind tells whether a replica that has not been silent for a term has yet to
// take in a change.
func (r *replica) behind(ctx context.Context, revision int64) (behind bool, _ error) {
	found, err := r.heartbeats(ctx, r.s.Rows, ` AND grants_at < $2`, revision)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, beat := range found {
		w := r.peer(id, beat)
		r.peers[id] = w
		behind = behind || time.Since(w.since) < leaseWait
	}
	return behind, nil
}

// rows is Store.rows over the replica's own connections.
func (r *replica) rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	rows, err := r.db.QueryContext(ctx, query, args...)
	return r.s.scan(rows, err, f)
}

// leave says that this process will answer no more.
func (r *replica) leave() error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	r.lease.began.Store(nil)
	if r.heartbeat == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_, _ = r.db.ExecContext(ctx, `DELETE FROM replicas WHERE id = $1`, r.id) // if not, its silence will say it
	return nil
}
