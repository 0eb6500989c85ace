package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var mappings = listing[resource.ExternalGroupRoleMapping]{
	kind:    "external_group_role_mappings",
	holders: "identity_providers",
	columns: `t.uid, t.external_group, (SELECT r.uid FROM roles AS r WHERE r.seg = t.role), t.scope, t.create_ms`,
	orders:  map[string]string{"uid": "uid", "create_time": "create_ms"},
	scan: func(row scanner) (m resource.ExternalGroupRoleMapping, err error) {
		var created int64
		err = row.Scan(&m.UID, &m.ExternalGroup, &m.Role, &m.Scope, &created)
		m.CreateTime = fromMS(created)
		return m, err
	},
	cursor: func(m resource.ExternalGroupRoleMapping, col string) page.Cursor {
		return cursorAt(col, m.UID, "", m.CreateTime, m.CreateTime)
	},
}

// InsertMapping adds m. It returns fault.NotFound if its provider or its role is
// not there, and fault.AlreadyExists if there is the same one.
func (s *Store) InsertMapping(ctx context.Context, m resource.ExternalGroupRoleMapping) error {
	return s.write(ctx, func(t *tx) error {
		var one int
		err := t.row(ctx, `SELECT 1 FROM identity_providers AS t WHERE t.uid = $1`+s.engine.hold, []any{string(m.Provider())}, &one)
		if err != nil {
			return missing(err, "identity provider", m.Provider())
		}
		if err := t.mustHaveRole(ctx, m.Role); err != nil {
			return err
		}
		_, err = t.exec(ctx, `
			INSERT INTO external_group_role_mappings (seg, uid, parent, a1, a2, a3, external_group, role, scope, create_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			append(place(m.UID), m.ExternalGroup, segment(m.Role), string(m.Scope), ms(m.CreateTime))...)
		if s.engine.failure(err) == notOne {
			f := fault.Exists("external group role mapping", m.ExternalGroup)
			f.Message, f.Cause = "Already exists: a mapping of this external group to this role in this scope", err
			return f
		}
		if err != nil {
			return err
		}
		return t.added(ctx, "external_group_role_mappings", resource.MappingCreated, m.UID, m.UID.Root(), m)
	})
}

// Mapping returns a mapping, or fault.NotFound.
func (s *Store) Mapping(ctx context.Context, uid resource.UID) (resource.ExternalGroupRoleMapping, error) {
	return get(ctx, s, &mappings, "external group role mapping", uid)
}

// DeleteMapping removes a mapping. It returns fault.NotFound if there is none.
func (s *Store) DeleteMapping(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		m, err := t.unmap(ctx, uid)
		if err != nil {
			return err
		}
		return t.emit(ctx, resource.MappingDeleted, uid, uid.Root(), m, nil)
	})
}

// DeleteMappings removes the mappings of a provider that are there, all in one
// go, and returns them.
func (s *Store) DeleteMappings(ctx context.Context, provider resource.UID, uids []resource.UID) (gone []resource.ExternalGroupRoleMapping, _ error) {
	err := s.write(ctx, func(t *tx) error {
		gone = nil
		for _, uid := range uids {
			if uid.Parent() != provider {
				continue
			}
			m, err := t.unmap(ctx, uid)
			if fault.From(err).Code == fault.NotFound {
				continue
			}
			if err != nil {
				return err
			}
			gone = append(gone, m)
		}
		if len(gone) == 0 {
			return nil
		}
		return t.emit(ctx, resource.MappingsDeleted, provider, provider.Root(), gone, nil)
	})
	return gone, err
}

// unmap removes a mapping and its count.
func (t *tx) unmap(ctx context.Context, uid resource.UID) (resource.ExternalGroupRoleMapping, error) {
	m, err := take(ctx, t, &mappings, "external group role mapping", uid, t.s.engine.lockKey)
	if err != nil {
		return m, err
	}
	if _, err := t.exec(ctx, `DELETE FROM external_group_role_mappings WHERE uid = $1`, string(uid)); err != nil {
		return m, err
	}
	return m, t.count(ctx, "external_group_role_mappings", uid, -1)
}

// Mappings returns one page of mappings.
func (s *Store) Mappings(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.ExternalGroupRoleMapping], error) {
	return list(ctx, s, &mappings, r, f, p)
}
