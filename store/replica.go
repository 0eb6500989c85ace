package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	termLength = 2 * time.Second
	termWait   = termLength + termLength/10 // as long, by a clock that goes a little faster

	pauseFirst = 500 * time.Microsecond // between looks at who is still behind,
	pauseLast  = 20 * time.Millisecond  // each twice the one before
	leaveLimit = 2 * time.Second        // for saying that this process ends

	replicasKept = 10 * time.Minute // after their last word
)

// A Term is the time for which a process may rely on what it knows of a database
// that others write to. It begins when Renew is called, and ends by itself.
type Term struct{ began atomic.Pointer[time.Time] }

// Begin has the term begin at the time before Renew was called, once all it
// told of is taken in.
func (t *Term) Begin(at time.Time) { t.began.Store(&at) }

// Holds tells whether the term lasts. A machine that was asleep has a clock that
// stood still and one that did not: both are asked.
func (t *Term) Holds(now time.Time) bool {
	at := t.began.Load()
	return at != nil && now.Sub(*at) < termLength && now.Round(0).Sub(at.Round(0)) < termLength
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
	s    *Store
	db   *sql.DB // of its own: it is not to wait behind those who read and write
	id   string
	term Term // of what is in seen

	turn   sync.Mutex // to renew
	beat   int64      // how often it has said that it is there
	groups int64      // the revision of groups it has taken in

	mu     sync.Mutex // guards what is below; never held during I/O
	others map[string]word
}

// A word is the latest of another replica, and when it was first heard here.
type word struct {
	beat  int64
	since time.Time
}

func newReplica(s *Store, db *sql.DB) *replica {
	db.SetMaxOpenConns(2) // one to listen
	return &replica{s: s, db: db, id: rand.Text(), groups: -1, others: map[string]word{}}
}

// Renew tells the other replicas that this one is there and has taken in the
// changes to grants up to a revision, and returns the newest. Changes to groups
// it takes in itself. news says that there were any, of either: then it should
// be called again soon, for somebody waits to hear that they are taken in.
func (s *Store) Renew(ctx context.Context, grants int64) (newest int64, news bool, err error) {
	if !s.engine.shared {
		newest, err = s.Revision(ctx)
		return newest, newest != grants, err
	}
	return s.replica.renew(ctx, grants)
}

func (r *replica) renew(ctx context.Context, grants int64) (newest int64, news bool, _ error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	began := time.Now()
	if err := r.say(ctx, grants); err != nil {
		return 0, false, r.s.outcome(err)
	}
	newest, groups, err := r.ask(ctx)
	if err != nil {
		return 0, false, err
	}
	news = newest != grants || groups != r.groups
	if err := r.takeIn(ctx, groups); err != nil {
		return 0, false, err
	}
	r.term.Begin(began)
	return newest, news, r.listen(ctx)
}

// say writes that this replica is there. The first time it clears away those
// that have not been for long.
func (r *replica) say(ctx context.Context, grants int64) error {
	if r.beat == 0 {
		if _, err := r.db.ExecContext(ctx, `DELETE FROM replicas WHERE renew_ms < `+r.s.engine.clock+` - $1`, replicasKept.Milliseconds()); err != nil {
			return err
		}
	}
	r.beat++
	_, err := r.db.ExecContext(ctx, `INSERT INTO replicas (id, beat, renew_ms, grants_at, groups_at) VALUES ($1, $2, `+r.s.engine.clock+`, $3, $4)
		ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, renew_ms = excluded.renew_ms, grants_at = excluded.grants_at, groups_at = excluded.groups_at`,
		r.id, r.beat, grants, r.groups)
	return err
}

// ask returns the newest revisions.
func (r *replica) ask(ctx context.Context) (grants, groups int64, err error) {
	err = r.rows(ctx, `SELECT id, rev FROM revision WHERE id IN (1, 2)`, nil, func(row scanner) (bool, error) {
		var id, rev int64
		err := row.Scan(&id, &rev)
		if id == 1 {
			grants = rev
		} else {
			groups = rev
		}
		return false, err
	})
	return grants, groups, err
}

// takeIn forgets the groups and repos that have changed up to a revision.
func (r *replica) takeIn(ctx context.Context, groups int64) error {
	if groups == r.groups {
		return nil
	}
	changed, all, err := r.outdated(ctx, groups)
	if err != nil {
		return err
	}
	if all {
		r.s.seen.forgetAll()
	}
	for _, uid := range changed {
		r.s.seen.forget(uid)
	}
	r.groups = groups
	return nil
}

// listen notes the latest word of the others, so that one that is silent need
// not be waited for.
func (r *replica) listen(ctx context.Context) error {
	found, err := r.words(ctx, r.rows, ``)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	others := map[string]word{}
	for id, beat := range found {
		others[id] = r.hear(id, beat)
	}
	r.others = others // without those that have left
	return nil
}

// words reads the beats of the other replicas, or of some.
func (r *replica) words(ctx context.Context, read reader, which string, args ...any) (map[string]int64, error) {
	found := map[string]int64{}
	err := read(ctx, `SELECT id, beat FROM replicas WHERE id <> $1`+which, append([]any{r.id}, args...), func(row scanner) (bool, error) {
		var id string
		var beat int64
		err := row.Scan(&id, &beat)
		found[id] = beat
		return false, err
	})
	return found, err
}

// hear returns the latest word of a replica, which has this beat.
func (r *replica) hear(id string, beat int64) word {
	if w, ok := r.others[id]; ok && w.beat == beat {
		return w
	}
	return word{beat, time.Now()}
}

// tellOutdated records what others may remember and the transaction has changed.
func (t *tx) tellOutdated(ctx context.Context) error {
	if !t.s.engine.shared || len(t.outdated) == 0 {
		return nil
	}
	n := int64(len(t.outdated))
	if err := t.row(ctx, `UPDATE revision SET rev = rev + $1 WHERE id = 2 RETURNING rev`, []any{n}, &t.outdatedAt); err != nil {
		return err
	}
	for i, uid := range t.outdated {
		if err := t.later(ctx, `INSERT INTO group_changes (rev, grp) VALUES ($1, $2)`, t.outdatedAt-n+1+int64(i), string(uid)); err != nil {
			return err
		}
	}
	if t.outdatedAt%changesPruned < n {
		return t.later(ctx, `DELETE FROM group_changes WHERE rev <= $1`, t.outdatedAt-changesKept)
	}
	return nil
}

// outdated returns what has changed up to a revision, or that all may have: the
// record does not go back for ever, and a database that was restored has gone
// back itself.
func (r *replica) outdated(ctx context.Context, until int64) (changed []resource.UID, all bool, err error) {
	err = r.rows(ctx, `SELECT grp FROM group_changes WHERE rev > $1 AND rev <= $2`, []any{r.groups, until}, func(row scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		changed = append(changed, uid)
		return false, err
	})
	return changed, int64(len(changed)) != until-r.groups, err
}

// await returns when every other replica has taken in the changes up to these
// revisions, which are committed, or can rely no longer on what it knew before.
// That takes no longer than a term, even if the database no longer answers.
func (r *replica) await(ctx context.Context, grants, groups int64) {
	ctx, cancel := context.WithTimeout(ctx, termWait)
	defer cancel()
	for pause := pauseFirst; ; pause = min(2*pause, pauseLast) {
		if behind, err := r.behind(ctx, grants, groups); err == nil && !behind {
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
func (r *replica) behind(ctx context.Context, grants, groups int64) (behind bool, _ error) {
	found, err := r.words(ctx, r.s.rows, ` AND (grants_at < $2 OR groups_at < $3)`, grants, groups)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, beat := range found {
		w := r.hear(id, beat)
		r.others[id] = w
		behind = behind || time.Since(w.since) < termWait
	}
	return behind, nil
}

// rows is Store.rows over the replica's own connections.
func (r *replica) rows(ctx context.Context, query string, args []any, f func(scanner) (enough bool, err error)) error {
	rows, err := r.db.QueryContext(ctx, query, args...)
	return r.s.scan(rows, err, f)
}

// leave says that this process will answer no more.
func (r *replica) leave() error {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.term.began.Store(nil)
	if r.beat == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_, _ = r.db.ExecContext(ctx, `DELETE FROM replicas WHERE id = $1`, r.id) // if not, its silence will say it
	return nil
}
