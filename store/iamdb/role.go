package iamdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var roles = store.Kind[resource.Role]{
	Table:   "roles",
	Columns: "t.uid, t.name, t.description, t.capabilities, t.create_ms, t.update_ms",
	Orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (r resource.Role, err error) {
		var caps string
		var created, updated int64
		if err = row.Scan(&r.UID, &r.Name, &r.Description, &caps, &created, &updated); err != nil {
			return r, err
		}
		r.CreateTime, r.UpdateTime = store.FromMS(created), store.FromMS(updated)
		return r, json.Unmarshal([]byte(caps), &r.Capabilities)
	},
	Cursor: func(r resource.Role, col string) page.Cursor {
		return store.CursorAt(col, r.UID, r.Name, r.CreateTime, r.UpdateTime)
	},
}

// InsertRole adds r. It returns fault.NotFound if its group is not there, and
// fault.AlreadyExists if that group has a role of the name.
func (s *Store) InsertRole(ctx context.Context, r resource.Role) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.MustExist(ctx, r.UID.Parent()); err != nil {
			return err
		}
		if err := t.insertRole(ctx, r); err != nil {
			return err
		}
		if err := t.Emit(ctx, resource.RoleCreated, r.UID, r.UID.Parent(), nil, r); err != nil {
			return err
		}
		return t.Count(ctx, "roles", r.UID, 1)
	})
}

func (t Tx) insertRole(ctx context.Context, r resource.Role) error {
	caps, err := json.Marshal(r.Capabilities)
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	_, err = t.Exec(ctx, `
		INSERT INTO roles (seg, uid, parent, a1, a2, a3, name, description, capabilities, create_ms, update_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		append(store.TreeColumns(r.UID), r.Name, r.Description, string(caps), store.MS(r.CreateTime), store.MS(r.UpdateTime))...)
	if err != nil {
		return t.DB.Inserted(err, "role", r.Name, r.UID)
	}
	t.RoleChanged(r.UID)
	return nil
}

// Role returns a role, or fault.NotFound.
func (s *Store) Role(ctx context.Context, uid resource.UID) (resource.Role, error) {
	return store.Get(ctx, s.DB, &roles, "role", uid)
}

// UpdateRole applies change to the role and returns the result, under the rules
// of UpdateGroup.
func (s *Store) UpdateRole(ctx context.Context, uid resource.UID, change func(*resource.Role) error) (r resource.Role, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &roles, "role", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		r = before
		if err := change(&r); err != nil {
			return err
		}
		r.UpdateTime = s.Time()
		if err := t.updateRole(ctx, r); err != nil {
			return err
		}
		return t.Emit(ctx, resource.RoleUpdated, uid, uid.Parent(), before, r)
	})
	return r, err
}

func (t Tx) updateRole(ctx context.Context, r resource.Role) error {
	caps, err := json.Marshal(r.Capabilities)
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	_, err = t.Exec(ctx, `UPDATE roles SET name = $2, description = $3, capabilities = $4, update_ms = $5 WHERE uid = $1`,
		string(r.UID), r.Name, r.Description, string(caps), store.MS(r.UpdateTime))
	t.RoleChanged(r.UID)
	return t.DB.Inserted(err, "role", r.Name, r.UID)
}

// roleUsers is what keeps a role from being deleted.
var roleUsers = []store.Use{
	{Table: "role_bindings", Column: "role", Label: "role bindings"},
	{Table: "group_invites", Column: "role", Label: "group invites"},
	{Table: "identity_providers", Column: "default_role", Label: "identity providers"},
	{Table: "external_group_role_mappings", Column: "role", Label: "external group role mappings"},
}

// DeleteRole removes a role that nothing refers to. It returns
// fault.FailedPrecondition, naming the kinds, while something does, and
// fault.NotFound if there is no such role.
func (s *Store) DeleteRole(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		r, err := store.Lock(ctx, t.Tx, &roles, "role", uid, s.Engine.LockKey)
		if err != nil {
			return err
		}
		users, err := t.Users(ctx, uid, roleUsers)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("role", users...)
		}
		if _, err := t.Exec(ctx, `DELETE FROM roles WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		t.RoleChanged(uid)
		if err := t.Emit(ctx, resource.RoleDeleted, uid, uid.Parent(), r, nil); err != nil {
			return err
		}
		return t.Count(ctx, "roles", uid, -1)
	})
}

// Roles returns one page of roles.
func (s *Store) Roles(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.Role], error) {
	return store.List(ctx, s.DB, &roles, r, f, p)
}

// SetManagedRoles brings the service's own roles to these. Replicas that start
// together do it one after the other.
func (s *Store) SetManagedRoles(ctx context.Context, managed []resource.Role) error {
	return s.write(ctx, func(t Tx) error {
		var one int
		if err := t.Row(ctx, `SELECT 1 FROM revision AS t WHERE t.id = 1`+s.Engine.Lock, nil, &one); err != nil {
			return err
		}
		kept := map[resource.UID]resource.Role{}
		err := t.Rows(ctx, `SELECT `+roles.Columns+` FROM roles AS t WHERE t.parent IS NULL`, nil, func(row store.Scanner) error {
			r, err := roles.Scan(row)
			kept[r.UID] = r
			return err
		})
		if err != nil {
			return err
		}
		now := s.Time()
		for _, r := range managed {
			old, ok := kept[r.UID]
			r.CreateTime, r.UpdateTime = old.CreateTime, now
			switch {
			case !ok:
				r.CreateTime = now
				err = t.insertRole(ctx, r)
			case old.Capabilities != r.Capabilities || old.Description != r.Description || old.Name != r.Name:
				err = t.updateRole(ctx, r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
