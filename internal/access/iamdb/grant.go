package iamdb

import (
	"context"
	"encoding/json"
	"fmt"

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

// HasOrganizations reports whether there is any root group.
func (s *Store) HasOrganizations(ctx context.Context) (bool, error) {
	found, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM groups WHERE parent IS NULL LIMIT 1`)
	return len(found) > 0, err
}
