package iamdb

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var mappings = store.Kind[resource.ExternalGroupRoleMapping]{
	Table: "external_group_role_mappings", Label: "external group role mapping", ParentTables: "identity_providers",
	Created: resource.MappingCreated, Deleted: resource.MappingDeleted,
	Columns: func(m *resource.ExternalGroupRoleMapping) []store.Column {
		return []store.Column{
			store.Key(&m.UID),
			store.Text("external_group", &m.ExternalGroup),
			store.Ref("role", "roles", &m.Role),
			store.Text("scope", &m.Scope),
			store.Time("create_ms", &m.CreateTime).Order("create_time"),
		}
	},
}

// InsertMapping adds m. It returns fault.NotFound if its provider or its role does
// not exist, and fault.AlreadyExists if there is an equal mapping.
func (s *Store) InsertMapping(ctx context.Context, m resource.ExternalGroupRoleMapping) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.mappingAffects(ctx, m.Provider(), m.ExternalGroup); err != nil {
			return err
		}
		if err := t.RequireRole(ctx, m.Role); err != nil {
			return err
		}
		err := store.Insert(ctx, t.Tx, &mappings, m)
		if f := (*fault.Error)(nil); errors.As(err, &f) && f.Code == fault.AlreadyExists {
			f.Message = "Already exists: a mapping of this external group to this role in this scope"
			f.Resource = fault.Exists("external group role mapping", m.ExternalGroup).Resource
		}
		return err
	})
}

// Mapping returns a mapping, or fault.NotFound.
func (s *Store) Mapping(ctx context.Context, uid resource.UID) (resource.ExternalGroupRoleMapping, error) {
	return store.Get(ctx, s.DB, &mappings, uid)
}

// DeleteMapping removes a mapping, or returns fault.NotFound.
func (s *Store) DeleteMapping(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		m, err := t.deleteMapping(ctx, uid)
		if err != nil {
			return err
		}
		if err := t.mappingAffects(ctx, m.Provider(), m.ExternalGroup); err != nil {
			return err
		}
		return t.Emit(ctx, resource.MappingDeleted, uid, uid.Root(), m, nil)
	})
}

// DeleteMappings removes the mappings of a provider with these uids in one
// transaction, and returns them in the order of uids. It skips uids of mappings
// that do not exist or belong to another provider.
func (s *Store) DeleteMappings(
	ctx context.Context, provider resource.UID, uids []resource.UID,
) (deleted []resource.ExternalGroupRoleMapping, _ error) {
	position := map[resource.UID]int{}
	for i, uid := range slices.Backward(uids) {
		position[uid] = i // the first position, if a uid is given twice
	}
	err := s.write(ctx, func(t Tx) error {
		deleted = nil
		// The order is fixed, because two calls that lock the same rows in opposite orders would deadlock.
		for _, uid := range slices.Sorted(maps.Keys(position)) {
			if uid.Parent() != provider {
				continue
			}
			m, err := t.deleteMapping(ctx, uid)
			if fault.From(err).Code == fault.NotFound {
				continue
			}
			if err != nil {
				return err
			}
			deleted = append(deleted, m)
		}
		if len(deleted) == 0 {
			return nil
		}
		var groups []string
		for _, m := range deleted {
			groups = append(groups, m.ExternalGroup)
		}
		if err := t.mappingAffects(ctx, provider, groups...); err != nil {
			return err
		}
		slices.SortFunc(deleted, func(a, b resource.ExternalGroupRoleMapping) int {
			return position[a.UID] - position[b.UID]
		})
		return t.Emit(ctx, resource.MappingsDeleted, provider, provider.Root(), deleted, nil)
	})
	return deleted, err
}

// deleteMapping removes a mapping and updates the counters. The caller emits the event.
func (t Tx) deleteMapping(ctx context.Context, uid resource.UID) (resource.ExternalGroupRoleMapping, error) {
	m, err := store.Lock(ctx, t.Tx, &mappings, uid, t.DB.Engine.ForDelete)
	if err != nil {
		return m, err
	}
	if _, err := t.Exec(ctx, `DELETE FROM external_group_role_mappings WHERE uid = $1`, string(uid)); err != nil {
		return m, err
	}
	return m, t.Count(ctx, "external_group_role_mappings", uid, -1)
}

// Mappings returns one page of mappings.
func (s *Store) Mappings(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.ExternalGroupRoleMapping], error) {
	return store.List(ctx, s.DB, &mappings, r, f, p)
}
