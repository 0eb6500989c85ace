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
func (s *Store) Revision(ctx context.Context) (rev int64, err error) {
	err = s.row(ctx, revisionQuery, nil, &rev)
	return rev, err
}

const revisionQuery = `SELECT rev FROM revision WHERE id = 1`

// GrantChanges returns the changes after since, in order. complete is false if
// some of them are no longer kept.
func (s *Store) GrantChanges(ctx context.Context, since int64) (changes []GrantChange, complete bool, err error) {
	err = s.rows(ctx, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`, []any{since}, func(row scanner) (bool, error) {
		var c GrantChange
		err := row.Scan(&c.Revision, &c.Identity, &c.Role)
		changes = append(changes, c)
		return false, err
	})
	return changes, len(changes) == 0 || changes[0].Revision == since+1, err
}

// reread has every checker read again what it knows of an identity.
func (t *tx) reread(identity resource.UID) { t.granted = append(t.granted, change{identity: identity}) }

// repathed has every replica clear its cache of repos, because a path may lead to
// another repo than before, or to none.
func (t *tx) repathed() { t.granted = append(t.granted, change{}) }

// A change says whose grants to read again.
type change struct{ identity, role resource.UID }

// tellGranted records whose grants the transaction has changed.
func (t *tx) tellGranted(ctx context.Context) error {
	if len(t.granted) == 0 {
		return nil
	}
	err := t.row(ctx, `UPDATE revision SET rev = rev + $1 WHERE id = 1 RETURNING rev`, []any{len(t.granted)}, &t.moved)
	if err != nil {
		return err
	}
	for i, c := range t.granted {
		rev := t.moved - int64(len(t.granted)-1-i)
		if err := t.later(ctx, `INSERT INTO grant_changes (rev, identity, role) VALUES ($1, $2, $3)`, rev, string(c.identity), string(c.role)); err != nil {
			return err
		}
	}
	if t.moved%changesPruned < int64(len(t.granted)) {
		return t.later(ctx, `DELETE FROM grant_changes WHERE rev <= $1`, t.moved-changesKept)
	}
	return nil
}

// OnGrantChange makes f run after every commit of this store that changed
// grants, before the write returns to its caller.
func (s *Store) OnGrantChange(f func(ctx context.Context, revision int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, f)
}

func (s *Store) tell(ctx context.Context, moved int64) {
	if moved == 0 {
		return
	}
	s.repos.clear()
	s.mu.Lock()
	watchers := slices.Clone(s.watchers)
	s.mu.Unlock()
	for _, f := range watchers {
		f(ctx, moved)
	}
}

// regrant notes that the grants of identities have changed, each once.
func (t *tx) regrant(identities ...resource.UID) {
	for _, uid := range identities {
		if c := (change{identity: uid}); !slices.Contains(t.granted, c) {
			t.granted = append(t.granted, c)
		}
	}
}
