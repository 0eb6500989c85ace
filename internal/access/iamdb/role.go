package iamdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var roles = store.Kind[resource.Role]{
	Table: "roles", Label: "role",
	Created: resource.RoleCreated, Updated: resource.RoleUpdated, Deleted: resource.RoleDeleted,
	Columns: func(r *resource.Role) []store.Column {
		return []store.Column{
			store.Key(&r.UID),
			store.Text("name", &r.Name).Order("name"),
			store.Text("description", &r.Description),
			store.JSON("capabilities", &r.Capabilities),
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime).Order("update_time"),
		}
	},
}

// InsertRole adds r. It returns fault.NotFound if its group does not exist, and
// fault.AlreadyExists if the group has a role with that name.
func (s *Store) InsertRole(ctx context.Context, r resource.Role) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, r.UID.Parent()); err != nil {
			return err
		}
		t.RoleChanged(r.UID)
		return store.Insert(ctx, t.Tx, &roles, r)
	})
}

// Role returns a role, or fault.NotFound.
func (s *Store) Role(ctx context.Context, uid resource.UID) (resource.Role, error) {
	return store.Get(ctx, s.DB, &roles, uid)
}

// UpdateRole replaces before by after, under the rules of UpdateGroup.
func (s *Store) UpdateRole(ctx context.Context, before, after resource.Role) (resource.Role, error) {
	err := s.write(ctx, func(t Tx) error {
		t.RoleChanged(after.UID)
		return store.Update(ctx, t.Tx, &roles, before, &after)
	})
	return after, err
}

// roleUsers are the resources that prevent the deletion of a role.
var roleUsers = []store.Reference{
	{Table: "role_bindings", Column: "role", Label: "role bindings"},
	{Table: "group_invites", Column: "role", Label: "group invites"},
	{Table: "identity_providers", Column: "default_role", Label: "identity providers"},
	{Table: "external_group_role_mappings", Column: "role", Label: "external group role mappings"},
	{Table: "access_rules", Column: "role", Label: "access rules"},
	{Table: "access_rules", Column: "requester", Label: "access rules"},
}

// DeleteRole removes a role and its expired bindings. It returns fault.FailedPrecondition, naming the kinds, while
// another resource refers to the role, and fault.NotFound if there is no such role.
func (s *Store) DeleteRole(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		r, err := store.Lock(ctx, t.Tx, &roles, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		if err := t.deleteExpired(ctx, `t.role = $1`, store.Segment(uid)); err != nil {
			return err
		}
		users, err := t.ReferencedBy(ctx, uid, roleUsers)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("role", users...)
		}
		t.RoleChanged(uid)
		return store.Remove(ctx, t.Tx, &roles, r)
	})
}

// Roles returns one page of roles.
func (s *Store) Roles(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Role], error) {
	return store.List(ctx, s.DB, &roles, r, f, p)
}

// SetManagedRoles inserts and updates the roles that the service itself defines.
// Replicas that start at the same time do it one after the other.
func (s *Store) SetManagedRoles(ctx context.Context, managed []resource.Role) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.LockRevision(ctx); err != nil {
			return err
		}
		found, err := roles.All(ctx, t.Rows, ` WHERE t.parent IS NULL`)
		if err != nil {
			return err
		}
		stored := map[resource.UID]resource.Role{}
		for _, r := range found {
			stored[r.UID] = r
		}
		currentTime := s.Time()
		for _, r := range managed {
			old, ok := stored[r.UID]
			r.CreateTime, r.UpdateTime = old.CreateTime, currentTime
			switch {
			case !ok:
				r.CreateTime = currentTime
				err = store.InsertRow(ctx, t.Tx, &roles, r)
				t.RoleChanged(r.UID)
			case old.Capabilities != r.Capabilities || old.Description != r.Description || old.Name != r.Name:
				err = store.UpdateRow(ctx, t.Tx, &roles, old, &r)
				t.RoleChanged(r.UID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// RolesUsableOn returns up to n roles that can be bound on a group: managed roles, and the roles of the group and its
// ancestors.
func (s *Store) RolesUsableOn(ctx context.Context, group resource.UID, n int) ([]resource.Role, error) {
	q := store.Query{Engine: s.Engine}
	var segments []int64
	for _, g := range append(group.Ancestors(), group) {
		segments = append(segments, store.Segment(g))
	}
	where := ` WHERE t.parent IS NULL OR t.parent IN (SELECT v FROM ` + s.Engine.Unnest(&q, segments) + ` AS s)
		ORDER BY t.uid LIMIT ` + q.Arg(n)
	return roles.All(ctx, s.Rows, where, q.Args...)
}
