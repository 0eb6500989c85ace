package store

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// How many changes to grants are kept for checkers that fell behind, and how
// often older ones are dropped.
const changesKept, changesPruned = 10_000, 1_000

// A GrantChange says what replicas have to read again: the grants of an identity,
// or the capabilities of a role. If it names neither, they clear their caches.
type GrantChange struct {
	Revision       int64
	Identity, Role resource.UID
}

// Revision returns the number of the newest change to grants.
func (s *DB) Revision(ctx context.Context) (rev int64, err error) {
	err = s.Row(ctx, revisionQuery, nil, &rev)
	return rev, err
}

const revisionQuery = `SELECT rev FROM revision WHERE id = 1`

// GrantChanges returns the changes after since, in order. complete is false if
// some of them are no longer kept.
func (s *DB) GrantChanges(ctx context.Context, since int64) (changes []GrantChange, complete bool, err error) {
	changes, err = ReadAll(ctx, s.Rows, func(row Scanner) (c GrantChange, err error) {
		err = row.Scan(&c.Revision, &c.Identity, &c.Role)
		return c, err
	}, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`, since)
	return changes, len(changes) == 0 || changes[0].Revision == since+1, err
}

// Reread has every replica read again what it knows of identities.
func (t *Tx) IdentitiesChanged(identities ...resource.UID) {
	for _, uid := range identities {
		t.changed(GrantChange{Identity: uid})
	}
}

// RoleChanged has every replica read again what a role allows.
func (t *Tx) RoleChanged(role resource.UID) { t.changed(GrantChange{Role: role}) }

// PathsChanged has every replica clear its cache of repos, because a path may lead
// to another repo than before, or to none.
func (t *Tx) PathsChanged() { t.changed(GrantChange{}) }

// changed adds a change to those of the transaction, once.
func (t *Tx) changed(c GrantChange) {
	if !slices.Contains(t.changes, c) {
		t.changes = append(t.changes, c)
	}
}

// writeRevision takes the next revision if the transaction has changed grants, and
// records what has changed. A trigger dates what the transaction has added to the
// history of grants, and notes the actor there.
func (t *Tx) writeRevision(ctx context.Context) error {
	if len(t.changes) == 0 {
		return nil
	}
	err := t.Row(ctx, `UPDATE revision SET rev = rev + $1, actor = $2 WHERE id = 1 RETURNING rev`,
		[]any{len(t.changes), string(resource.ActorFrom(ctx).Subject)}, &t.revision)
	if err != nil {
		return err
	}
	for i, c := range t.changes {
		rev := t.revision - int64(len(t.changes)-1-i)
		if err := t.Later(ctx, `INSERT INTO grant_changes (rev, identity, role) VALUES ($1, $2, $3)`, rev,
			string(c.Identity), string(c.Role)); err != nil {
			return err
		}
	}
	if t.revision%changesPruned < int64(len(t.changes)) {
		return t.Later(ctx, `DELETE FROM grant_changes WHERE rev <= $1`, t.revision-changesKept)
	}
	return nil
}

// OnGrantChange makes f run after every commit of this store that changed
// grants, before the write returns to its caller.
func (s *DB) OnGrantChange(f func(ctx context.Context, revision int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onGrantChange = append(s.onGrantChange, f)
}

// notify tells this process of a new revision, or, if it is 0, of none.
func (s *DB) notify(ctx context.Context, revision int64) {
	if revision == 0 {
		return
	}
	s.clearCaches()
	s.mu.Lock()
	all := slices.Clone(s.onGrantChange)
	s.mu.Unlock()
	for _, f := range all {
		f(ctx, revision)
	}
}

// AwaitReplicas returns when this process and all other replicas know of every change that was
// committed, or their leases have ended. A writer waits for that by itself, unless it
// dies between its commit and its answer.
func (s *DB) AwaitReplicas(ctx context.Context) {
	if !s.Engine.Postgres || simulationIn(ctx) != nil {
		return
	}
	revision, err := s.Revision(ctx)
	if err != nil || s.settled.Load() == revision {
		return
	}
	s.notify(context.WithoutCancel(ctx), revision)
	s.replica.waitForPeers(ctx, revision)
	if ctx.Err() == nil {
		s.settled.Store(revision)
	}
}

// OnRevision makes f run whenever the revision has moved, by a change of this
// process or of another, before the write returns to its caller. f must be quick.
// It is for caches.
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
