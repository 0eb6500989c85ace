package store

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
)

// A RevisionRow is the id of a row in the table revision. Each row counts the changes to
// data that replicas keep in memory.
type RevisionRow int64

// These are the rows of the table revision. Row 2 counted the changes to groups and no longer
// exists.
const (
	// counts every change that replicas apply; it also increases with each of the other rows
	RevisionGrants    RevisionRow = replica.GrantsRow
	RevisionBudgets   RevisionRow = 3
	RevisionPullRules RevisionRow = 4
	RevisionUpstreams RevisionRow = 40
)

// changesKept is how many changes to grants are stored for replicas that are behind.
// Older changes are deleted after every changesPruned changes.
const changesKept, changesPruned = 10_000, 1_000

// A GrantChange is a change that replicas apply. They read the grants of the identity
// again, or the capabilities of the role. If the change names neither, they clear
// their caches.
type GrantChange struct {
	Revision       int64
	Identity, Role resource.UID
}

// Revision returns the number of the newest change to grants.
func (s *DB) Revision(ctx context.Context) (rev int64, err error) {
	err = s.Row(ctx, replica.RevisionQuery, nil, &rev)
	return rev, err
}

// GrantChanges returns the changes after since, in order. complete is false if some of
// these changes were already deleted.
func (s *DB) GrantChanges(ctx context.Context, since int64) (changes []GrantChange, complete bool, err error) {
	changes, err = ReadAll(ctx, s.Rows, func(row Scanner) (c GrantChange, err error) {
		err = row.Scan(&c.Revision, &c.Identity, &c.Role)
		return c, err
	}, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`, since)
	return changes, len(changes) == 0 || changes[0].Revision == since+1, err
}

// IdentitiesChanged makes every replica read identities and their grants again.
func (t *Tx) IdentitiesChanged(identities ...resource.UID) {
	for _, uid := range identities {
		t.changed(GrantChange{Identity: uid})
	}
}

// RoleChanged makes every replica read the capabilities of a role again.
func (t *Tx) RoleChanged(role resource.UID) { t.changed(GrantChange{Role: role}) }

// PathsChanged makes every replica clear its cache of repos, because a path may lead to
// another repo than before, or to none.
func (t *Tx) PathsChanged() { t.changed(GrantChange{}) }

// TableChanged makes every replica read a cached table again: see package tablecache.
func (t *Tx) TableChanged(ctx context.Context, row RevisionRow) error {
	t.changed(GrantChange{})
	return t.Later(ctx, `UPDATE revision SET rev = rev + 1 WHERE id = $1`, row)
}

// TableVersion returns the number of changes that TableChanged has announced for a row.
func (s *DB) TableVersion(ctx context.Context, row RevisionRow) (version int64, err error) {
	err = s.Row(ctx, `SELECT rev FROM revision WHERE id = $1`, []any{row}, &version)
	return version, err
}

// LockRevision locks the revision until the commit, so that transactions that call it, and
// transactions that change grants, run one after the other.
func (t *Tx) LockRevision(ctx context.Context) error {
	var one int
	return t.Row(ctx, `SELECT 1 FROM revision AS t WHERE t.id = $1`+t.DB.Engine.ForUpdate, []any{RevisionGrants}, &one)
}

// LockName waits until no other transaction holds the lock with a name and a number, and holds it until the commit. On
// SQLite it does nothing, because there is only one writer. The transaction must not hold other locks yet.
func (t *Tx) LockName(ctx context.Context, name string, number int64) error {
	if !t.DB.Engine.Postgres {
		return nil
	}
	if _, err := t.Exec(ctx, `SET LOCAL lock_timeout = '50s'`); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, $2))`, name, number); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT`)
	return err
}

// LockNames waits until no other transaction holds a lock with one of the names, and holds the locks until the commit.
// On SQLite it does nothing, because there is only one writer. It takes the locks in the order of the names. If two
// transactions nevertheless wait for each other, PostgreSQL ends one of them, and Write repeats it.
func (t *Tx) LockNames(ctx context.Context, names ...string) error {
	if !t.DB.Engine.Postgres {
		return nil
	}
	slices.Sort(names)
	_, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(n, 0)) FROM unnest($1::text[]) AS u (n)`, names)
	return err
}

// RevisionLocked reports whether a running transaction has locked the revision, because
// it changes grants. It works only on PostgreSQL.
func (s *DB) RevisionLocked(ctx context.Context) (locked bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS
		(SELECT 1 FROM pg_locks AS l WHERE l.locktype = 'transactionid' AND l.transactionid = t.xmax)
		FROM revision AS t WHERE t.id = $1`, []any{RevisionGrants}, &locked)
	return locked, err
}

// changed adds a change to the list of the transaction's changes, unless the list contains it.
func (t *Tx) changed(c GrantChange) {
	if _, ok := t.listed[c]; ok {
		return
	}
	if t.listed == nil {
		t.listed = map[GrantChange]struct{}{}
	}
	t.listed[c] = struct{}{}
	t.changes = append(t.changes, c)
}

// writeRevision takes the next revision number if the transaction has changed
// grants, and records the changes. A trigger adds the time and the actor to the
// rows that the transaction has added to the history of grants.
func (t *Tx) writeRevision(ctx context.Context) error {
	if len(t.changes) == 0 {
		return nil
	}
	err := t.Row(ctx, `UPDATE revision SET rev = rev + $1, actor = $2 WHERE id = $3 RETURNING rev`,
		[]any{len(t.changes), string(resource.ActorFrom(ctx).Subject), RevisionGrants}, &t.revision)
	if err != nil {
		return err
	}
	var rows [][]any
	for i, c := range t.changes {
		if left := int64(len(t.changes) - 1 - i); left < changesKept { // older ones would be deleted below
			rows = append(rows, []any{t.revision - left, string(c.Identity), string(c.Role)})
		}
	}
	if err := t.InsertRows(ctx, `INSERT INTO grant_changes (rev, identity, role)`, rows, ``); err != nil {
		return err
	}
	if t.revision%changesPruned < int64(len(t.changes)) {
		return t.Later(ctx, `DELETE FROM grant_changes WHERE rev <= $1`, t.revision-changesKept)
	}
	return nil
}

// OnGrantChange registers f to be called after every commit by this process that
// changed grants, before the write returns to its caller.
func (s *DB) OnGrantChange(f func(ctx context.Context, revision int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onGrantChange = append(s.onGrantChange, f)
}

// notify clears the caches of this process and calls the functions given to
// OnGrantChange, because there is a new revision. It does nothing for revision 0.
func (s *DB) notify(ctx context.Context, revision int64) {
	if revision == 0 {
		return
	}
	s.clearCaches()
	s.mu.Lock()
	functions := slices.Clone(s.onGrantChange)
	s.mu.Unlock()
	for _, f := range functions {
		f(ctx, revision)
	}
}

// OnRevision registers f to be called whenever the revision has increased, because of
// this process or another one, before the write returns to its caller. f should clear a
// cache, and must be quick.
func (s *DB) OnRevision(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRevision = append(s.onRevision, f)
}

// clearCaches calls the functions given to OnRevision.
func (s *DB) clearCaches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onRevision {
		f()
	}
}

// AwaitReplicas returns when this process and all other replicas have applied every
// committed change, or their leases have ended. Write does the same, so AwaitReplicas is
// needed only if a process died between the commit and the end of Write.
func (s *DB) AwaitReplicas(ctx context.Context) {
	if !s.Engine.Postgres || InTransaction(ctx) {
		return
	}
	revision, err := s.Revision(ctx)
	if err != nil || s.settled.Load() == revision {
		return
	}
	s.notify(context.WithoutCancel(ctx), revision)
	s.replica.WaitForPeers(ctx, revision)
	if ctx.Err() == nil {
		s.settled.Store(revision)
	}
}

// Renew writes a heartbeat that says that this process has applied the changes up to a
// position, and returns the newest position: see replica.Replica.Renew.
func (s *DB) Renew(ctx context.Context, applied replica.Position) (newest replica.Position, err error) {
	if !s.Engine.Postgres {
		newest.Revision, err = s.Revision(ctx)
		return newest, err
	}
	return s.replica.Renew(ctx, applied)
}

// ListenGrants calls f whenever a process has changed grants, or other data that
// replicas cache. It returns when ctx or the connection ends, or when the
// history of the database changes.
func (s *DB) ListenGrants(ctx context.Context, f func()) error {
	if !s.Engine.Postgres {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.replica.Listen(ctx, f)
}

// History returns how often the history of the database has changed since this process
// started: see replica.Position. A cache of versioned data stores the number with the
// version, because after a change the same version may have other content.
func (s *DB) History() int64 {
	if s.replica == nil {
		return 0
	}
	return s.replica.HistoryChanges()
}

// Replicas returns how many processes share the database, according to their heartbeats.
func (s *DB) Replicas() int {
	if !s.Engine.Postgres {
		return 1
	}
	return s.replica.Count()
}

// OldestReplica returns the number of the last migration that the programs of all
// replicas know. It is lower than the schema of the database while replicas of two
// versions share it.
func (s *DB) OldestReplica() int64 {
	if !s.Engine.Postgres {
		return math.MaxInt64
	}
	return s.replica.Oldest()
}

// Lag returns how many revisions this process had not applied when it last renewed its
// lease, and how long ago that was. ok is false if no other process can write to the
// database, or before the first renewal.
func (s *DB) Lag() (revisions int64, age time.Duration, ok bool) {
	if s.replica == nil {
		return 0, 0, false
	}
	return s.replica.Lag()
}
