package store

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/resource"
)

// How many changes to grants are kept for checkers that fell behind, and how
// often older ones are dropped.
const changesKept, changesPruned = 10_000, 1_000

// A GrantChange says what to read again: the grants of an identity, or the
// capabilities of a role.
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
	err = s.Rows(ctx, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`, []any{since}, func(row Scanner) (bool, error) {
		var c GrantChange
		err := row.Scan(&c.Revision, &c.Identity, &c.Role)
		changes = append(changes, c)
		return false, err
	})
	return changes, len(changes) == 0 || changes[0].Revision == since+1, err
}

// reread has every checker read again what it knows of an identity.
func (t *Tx) Reread(identity resource.UID) { t.changes = append(t.changes, change{identity: identity}) }

// repathed has every replica clear its cache of repos, because a path may lead to
// another repo than before, or to none.
func (t *Tx) PathsChanged() { t.changes = append(t.changes, change{}) }

// A change says whose grants to read again.
type change struct{ identity, role resource.UID }

// tellGranted records whose grants the transaction has changed.
func (t *Tx) writeRevision(ctx context.Context) error {
	if len(t.changes) == 0 {
		return nil
	}
	err := t.Row(ctx, `UPDATE revision SET rev = rev + $1 WHERE id = 1 RETURNING rev`, []any{len(t.changes)}, &t.revision)
	if err != nil {
		return err
	}
	for i, c := range t.changes {
		rev := t.revision - int64(len(t.changes)-1-i)
		if err := t.Later(ctx, `INSERT INTO grant_changes (rev, identity, role) VALUES ($1, $2, $3)`, rev, string(c.identity), string(c.role)); err != nil {
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

func (s *DB) notify(ctx context.Context, moved int64) {
	if moved == 0 {
		return
	}
	s.clearCaches()
	s.mu.Lock()
	watchers := slices.Clone(s.onGrantChange)
	s.mu.Unlock()
	for _, f := range watchers {
		f(ctx, moved)
	}
}

// regrant notes that the grants of identities have changed, each once.
func (t *Tx) Regrant(identities ...resource.UID) {
	for _, uid := range identities {
		if c := (change{identity: uid}); !slices.Contains(t.changes, c) {
			t.changes = append(t.changes, c)
		}
	}
}

// RoleChanged has every replica read again what a role allows.
func (t *Tx) RoleChanged(role resource.UID) { t.changes = append(t.changes, change{role: role}) }

// OnRevision has f run whenever the revision has moved, by a change of this
// process or another, before the caller who made the change is answered. f must
// be quick. It is for caches.
func (s *DB) OnRevision(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRevision = append(s.onRevision, f)
}

func (s *DB) clearCaches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onRevision {
		f()
	}
}
