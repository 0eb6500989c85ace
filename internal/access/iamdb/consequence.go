package iamdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// GrantsOfAll returns those grants of identities whose end is not recorded, keyed by the UIDs of their bindings.
func (s *Store) GrantsOfAll(ctx context.Context, identities []resource.UID) (map[resource.UID]Grant, error) {
	grants := map[resource.UID]Grant{}
	if len(identities) == 0 {
		return grants, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT b.uid, b.identity, r.uid, b.start_ms, b.expire_ms
		FROM ` + s.Engine.Unnest(&q, resource.Distinct(identities)) + ` AS s CROSS JOIN role_bindings AS b
		CROSS JOIN roles AS r WHERE b.identity = s.v AND b.end_ms = 0 AND r.seg = b.role`
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var g Grant
		err := row.Scan(&uid, &g.Identity, &g.Role, &g.StartMS, &g.ExpireMS)
		g.Group = uid.Parent()
		grants[uid] = g
		return false, err
	})
	return grants, err
}

// BoundTo returns up to n identities that have a binding of one of these roles. An identity that is bound to two of the
// roles is returned twice.
func (s *Store) BoundTo(ctx context.Context, roles []resource.UID, n int) (identities []resource.UID, _ error) {
	for _, role := range roles {
		found, err := store.ReadColumn[resource.UID](ctx, s.Rows,
			`SELECT DISTINCT identity FROM role_bindings WHERE role = $1 AND end_ms = 0 LIMIT $2`,
			store.Segment(role), n-len(identities))
		identities = append(identities, found...)
		if err != nil || len(identities) >= n {
			return identities, err
		}
	}
	return identities, nil
}

// CapabilitiesOf returns the capabilities of roles. It leaves out roles that do not exist.
func (s *Store) CapabilitiesOf(
	ctx context.Context, roles []resource.UID,
) (map[resource.UID]resource.Capabilities, error) {
	capabilities := map[resource.UID]resource.Capabilities{}
	if len(roles) == 0 {
		return capabilities, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT r.uid, r.capabilities FROM ` + s.Engine.Unnest(&q, resource.Distinct(roles)) + ` AS s
		CROSS JOIN roles AS r WHERE r.uid = s.v`
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
		capabilities[uid] = caps
		return false, nil
	})
	return capabilities, err
}

// IdentitiesByUID returns identities by their UIDs. It leaves out identities that do not exist.
func (s *Store) IdentitiesByUID(ctx context.Context, uids []resource.UID) (map[resource.UID]resource.Identity, error) {
	byUID := map[resource.UID]resource.Identity{}
	if len(uids) == 0 {
		return byUID, nil
	}
	q := store.Query{Engine: s.Engine}
	where := ` WHERE t.uid IN (SELECT v FROM ` + s.Engine.Unnest(&q, resource.Distinct(uids)) + ` AS s)`
	found, err := identities.All(ctx, s.Rows, where, q.Args...)
	for _, i := range found {
		byUID[i.UID] = i
	}
	return byUID, err
}

// Unmapped returns up to n bindings that a mapping of a provider created and that no mapping of the provider grants
// now. Each of them is deleted when its person signs in again.
func (s *Store) Unmapped(ctx context.Context, provider resource.UID, n int) ([]resource.RoleBinding, error) {
	return bareBindings.All(ctx, s.Rows, `
		WHERE t.seg IN (SELECT m.binding FROM mapped_bindings AS m WHERE m.provider = $1)
			AND NOT EXISTS (SELECT 1 FROM external_group_role_mappings AS e JOIN groups AS g ON g.uid = e.scope
				WHERE e.parent = $1 AND e.role = t.role AND g.seg = t.parent)
		ORDER BY t.uid LIMIT $2`,
		store.Segment(provider), n)
}
