package iamdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GrantsOfAll returns the grants of identities by the UIDs of their bindings, without those that are recorded as over.
func (s *Store) GrantsOfAll(ctx context.Context, identities []resource.UID) (map[resource.UID]Grant, error) {
	all := map[resource.UID]Grant{}
	if len(identities) == 0 {
		return all, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT b.uid, b.identity, r.uid, b.start_ms, b.expire_ms FROM ` + s.Engine.Unnest(&q, texts(identities)) + ` AS s
		CROSS JOIN role_bindings AS b CROSS JOIN roles AS r WHERE b.identity = s.v AND b.end_ms = 0 AND r.seg = b.role`
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var g Grant
		err := row.Scan(&uid, &g.Identity, &g.Role, &g.StartMS, &g.ExpireMS)
		g.Group = uid.Parent()
		all[uid] = g
		return false, err
	})
	return all, err
}

// texts returns UIDs as texts, each once.
func texts(uids []resource.UID) []string {
	all := make([]string, len(uids))
	for i, uid := range uids {
		all[i] = string(uid)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// BoundTo returns up to n identities that are bound to one of these roles, in the order of their UIDs.
func (s *Store) BoundTo(ctx context.Context, roles []resource.UID, n int) (all []resource.UID, _ error) {
	for _, role := range roles {
		some, err := store.ReadColumn[resource.UID](ctx, s.Rows,
			`SELECT DISTINCT identity FROM role_bindings WHERE role = $1 AND end_ms = 0 LIMIT $2`, store.Segment(role), n-len(all))
		all = append(all, some...)
		if err != nil || len(all) >= n {
			return all, err
		}
	}
	return all, nil
}

// CapabilitiesOf returns what roles allow, of those that exist.
func (s *Store) CapabilitiesOf(
	ctx context.Context, roles []resource.UID,
) (map[resource.UID]resource.Capabilities, error) {
	all := map[resource.UID]resource.Capabilities{}
	if len(roles) == 0 {
		return all, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT r.uid, r.capabilities FROM ` + s.Engine.Unnest(&q, texts(roles)) + ` AS s CROSS JOIN roles AS r WHERE r.uid = s.v`
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var detail []byte
		if err := row.Scan(&uid, &detail); err != nil {
			return false, err
		}
		var caps resource.Capabilities
		if err := json.Unmarshal(detail, &caps); err != nil {
			return false, fmt.Errorf("capabilities of %s: %w", uid, err)
		}
		all[uid] = caps
		return false, nil
	})
	return all, err
}

// IdentitiesByUID returns identities by their UIDs, of those that exist.
func (s *Store) IdentitiesByUID(ctx context.Context, uids []resource.UID) (map[resource.UID]resource.Identity, error) {
	all := map[resource.UID]resource.Identity{}
	if len(uids) == 0 {
		return all, nil
	}
	q := store.Query{Engine: s.Engine}
	found, err := identities.All(ctx, s.Rows, ` WHERE t.uid IN (SELECT v FROM `+s.Engine.Unnest(&q, texts(uids))+` AS s)`, q.Args...)
	for _, i := range found {
		all[i.UID] = i
	}
	return all, err
}

// SessionsOf returns the sessions of identities that have not expired, each by its id, and those with the ids given.
func (s *Store) SessionsOf(
	ctx context.Context, identities []resource.UID, ids []string,
) (map[string]resource.Session, error) {
	all := map[string]resource.Session{}
	now := s.Time()
	for column, keys := range map[string][]string{"identity": texts(identities), "id": ids} {
		if len(keys) == 0 {
			continue
		}
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadAll(ctx, s.Rows, scanSession,
			selectSession+` WHERE t.`+column+` IN (SELECT v FROM `+s.Engine.Unnest(&q, keys)+` AS s)`, q.Args...)
		if err != nil {
			return nil, err
		}
		for _, n := range found {
			if now.Before(n.ExpireTime) {
				all[n.ID] = n
			}
		}
	}
	return all, nil
}

// Unmapped returns up to n bindings that were made by a mapping of a provider, and that none of its mappings gives any
// more. Each goes when its person signs in again.
func (s *Store) Unmapped(ctx context.Context, provider resource.UID, n int) ([]resource.RoleBinding, error) {
	return bareBindings.All(ctx, s.Rows, ` WHERE t.seg IN (SELECT m.binding FROM mapped_bindings AS m
			WHERE m.provider = $1) AND NOT EXISTS (SELECT 1 FROM external_group_role_mappings AS e JOIN groups AS g ON g.uid = e.scope
			WHERE e.parent = $1 AND e.role = t.role AND g.seg = t.parent) ORDER BY t.uid LIMIT $2`,
		store.Segment(provider), n)
}
