package iamdb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Grant is the part of a binding that authorization needs.
type Grant struct {
	Identity, Group, Role resource.UID
	StartMS, ExpireMS     int64 // in milliseconds since 1970; 0 means no limit
}

// Grants calls f for every grant whose end is not recorded, and returns a revision. Roles that teams give are grants,
// too. The grants include every change up to this revision, and may include later changes.
func (s *Store) Grants(ctx context.Context, f func(Grant)) (revision int64, _ error) {
	revision, err := s.Revision(ctx)
	if err != nil {
		return 0, err
	}
	roles, err := store.ReadMap[int64, resource.UID](ctx, s.Rows, `SELECT seg, uid FROM roles`)
	if err != nil {
		return 0, err
	}
	text := `SELECT identity, uid, role, start_ms, expire_ms FROM role_bindings WHERE end_ms = 0`
	err = s.Rows(ctx, text, nil, func(row store.Scanner) (bool, error) {
		var identity, uid string // plain strings, because scanning many rows into named types is slow
		var role, start, expire int64
		err := row.Scan(&identity, &uid, &role, &start, &expire)
		f(Grant{resource.UID(identity), resource.UID(uid).Parent(), roles[role], start, expire})
		return false, err
	})
	if err != nil {
		return 0, err
	}
	return revision, s.teamGrants(ctx, roles, f)
}

// GrantsOf returns the grants of one identity whose end is not recorded.
func (s *Store) GrantsOf(ctx context.Context, identity resource.UID) ([]Grant, error) {
	bound, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (Grant, error) {
		var uid, role resource.UID
		var start, expire int64
		err := row.Scan(&uid, &role, &start, &expire)
		return Grant{identity, uid.Parent(), role, start, expire}, err
	}, `SELECT b.uid, (SELECT r.uid FROM roles AS r WHERE r.seg = b.role), b.start_ms, b.expire_ms FROM role_bindings AS b
		WHERE b.identity = $1 AND b.end_ms = 0`, string(identity))
	if err != nil {
		return nil, err
	}
	through, err := s.teamGrantsOf(ctx, identity)
	return append(bound, through...), err
}

// RoleCapabilities returns the capabilities of every role.
func (s *Store) RoleCapabilities(ctx context.Context) (map[resource.UID]resource.Capabilities, error) {
	texts, err := store.ReadMap[resource.UID, []byte](ctx, s.Rows, `SELECT uid, capabilities FROM roles`)
	capabilities := map[resource.UID]resource.Capabilities{}
	for uid, text := range texts {
		var caps resource.Capabilities
		if err := json.Unmarshal(text, &caps); err != nil {
			return nil, fmt.Errorf("capabilities of %s: %w", uid, err)
		}
		capabilities[uid] = caps
	}
	return capabilities, err
}

// Revocations returns the identities that were deleted after since and the
// subjects of sessions that were ended after since, each with its time. Tokens
// that were issued for them up to that time are void.
func (s *Store) Revocations(ctx context.Context, since time.Time) (map[resource.UID]time.Time, error) {
	times, err := store.ReadMap[resource.UID, int64](ctx, s.Rows,
		`SELECT identity, at_ms FROM revocations WHERE at_ms > $1`, store.MS(since))
	revoked := map[resource.UID]time.Time{}
	for uid, ms := range times {
		revoked[uid] = store.FromMS(ms)
	}
	return revoked, err
}

// revoke makes the tokens of an identity or of a session void, and deletes
// revocations that are older than any valid token.
func (t Tx) revoke(ctx context.Context, identity resource.UID) error {
	currentTime := t.DB.Time()
	oldest := currentTime.Add(-revocationsKept)
	if _, err := t.Exec(ctx, `DELETE FROM revocations WHERE at_ms < $1`, store.MS(oldest)); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO revocations (identity, at_ms) VALUES ($1, $2)
		ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms`, string(identity), store.MS(currentTime))
	t.IdentitiesChanged(identity)
	return err
}

// revocationsKept is how long revocations are stored. It is longer than the lifetime of any token that this service
// signs.
const revocationsKept = 48 * time.Hour

// HasOrganizations reports whether there is any root group.
func (s *Store) HasOrganizations(ctx context.Context) (bool, error) {
	found, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM groups WHERE parent IS NULL LIMIT 1`)
	return len(found) > 0, err
}
