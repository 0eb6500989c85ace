package iamdb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Grant is a binding reduced to what authorization needs.
type Grant struct {
	Identity, Group, Role resource.UID
	StartMS, ExpireMS     int64 // when it begins and ends, in milliseconds; 0 is always
}

// Grants calls f for every grant there is, without those that are recorded as over, and returns a revision they include:
// of the changes after it they may have some.
func (s *Store) Grants(ctx context.Context, f func(Grant)) (revision int64, _ error) {
	revision, err := s.Revision(ctx)
	if err != nil {
		return 0, err
	}
	roles, err := store.ReadMap[int64, resource.UID](ctx, s.Rows, `SELECT seg, uid FROM roles`)
	if err != nil {
		return 0, err
	}
	err = s.Rows(ctx, `SELECT identity, uid, role, start_ms, expire_ms FROM role_bindings WHERE end_ms = 0`, nil, func(row store.Scanner) (bool, error) {
		var identity, uid string // database/sql is slow with types of our own, and these are many
		var role, start, expire int64
		err := row.Scan(&identity, &uid, &role, &start, &expire)
		f(Grant{resource.UID(identity), resource.UID(uid).Parent(), roles[role], start, expire})
		return false, err
	})
	return revision, err
}

// GrantsOf returns the grants of one identity, without those that are recorded as over.
func (s *Store) GrantsOf(ctx context.Context, identity resource.UID) ([]Grant, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (Grant, error) {
		var uid, role resource.UID
		var start, expire int64
		err := row.Scan(&uid, &role, &start, &expire)
		return Grant{identity, uid.Parent(), role, start, expire}, err
	}, `SELECT b.uid, (SELECT r.uid FROM roles AS r WHERE r.seg = b.role), b.start_ms, b.expire_ms FROM role_bindings AS b
		WHERE b.identity = $1 AND b.end_ms = 0`, string(identity))
}

// RoleCapabilities returns what every role allows.
func (s *Store) RoleCapabilities(ctx context.Context) (map[resource.UID]resource.Capabilities, error) {
	texts, err := store.ReadMap[resource.UID, []byte](ctx, s.Rows, `SELECT uid, capabilities FROM roles`)
	all := map[resource.UID]resource.Capabilities{}
	for uid, text := range texts {
		var caps resource.Capabilities
		if err := json.Unmarshal(text, &caps); err != nil {
			return nil, fmt.Errorf("capabilities of %s: %w", uid, err)
		}
		all[uid] = caps
	}
	return all, err
}

// Revocations returns the identities that were deleted after since, and the
// subjects of sessions that were ended, and when: tokens issued until then are
// void.
func (s *Store) Revocations(ctx context.Context, since time.Time) (map[resource.UID]time.Time, error) {
	times, err := store.ReadMap[resource.UID, int64](ctx, s.Rows,
		`SELECT identity, at_ms FROM revocations WHERE at_ms > $1`, store.MS(since))
	all := map[resource.UID]time.Time{}
	for uid, at := range times {
		all[uid] = store.FromMS(at)
	}
	return all, err
}

// revoke makes the tokens of an identity or of a session void, and forgets
// revocations that are older than any token can be.
func (t Tx) revoke(ctx context.Context, identity resource.UID) error {
	now := t.DB.Time()
	if _, err := t.Exec(ctx, `DELETE FROM revocations WHERE at_ms < $1`, store.MS(now.Add(-revocationsKept))); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO revocations (identity, at_ms) VALUES ($1, $2)
		ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms`, string(identity), store.MS(now))
	t.IdentitiesChanged(identity)
	return err
}

// revocationsKept is longer than the life of any token this service signs.
const revocationsKept = 48 * time.Hour

// HasOrganizations reports whether there is any root group.
func (s *Store) HasOrganizations(ctx context.Context) (bool, error) {
	found, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM groups WHERE parent IS NULL LIMIT 1`)
	return len(found) > 0, err
}
