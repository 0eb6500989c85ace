package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var roles = listing[resource.Role]{
	kind:    "roles",
	columns: "t.uid, t.name, t.description, t.capabilities, t.create_ms, t.update_ms",
	orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	scan: func(row scanner) (r resource.Role, err error) {
		var caps string
		var created, updated int64
		if err = row.Scan(&r.UID, &r.Name, &r.Description, &caps, &created, &updated); err != nil {
			return r, err
		}
		r.CreateTime, r.UpdateTime = fromMS(created), fromMS(updated)
		return r, json.Unmarshal([]byte(caps), &r.Capabilities)
	},
	cursor: func(r resource.Role, col string) page.Cursor {
		return cursorAt(col, r.UID, r.Name, r.CreateTime, r.UpdateTime)
	},
}

// InsertRole adds r. It returns fault.NotFound if its group is not there, and
// fault.AlreadyExists if that group has a role of the name.
func (s *Store) InsertRole(ctx context.Context, r resource.Role) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, r.UID.Parent()); err != nil {
			return err
		}
		if err := t.insertRole(ctx, r); err != nil {
			return err
		}
		if err := t.emit(ctx, resource.RoleCreated, r.UID, r.UID.Parent(), nil, r); err != nil {
			return err
		}
		return t.count(ctx, "roles", r.UID, 1)
	})
}

func (t *tx) insertRole(ctx context.Context, r resource.Role) error {
	caps, err := json.Marshal(r.Capabilities)
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	_, err = t.exec(ctx, `
		INSERT INTO roles (seg, uid, parent, a1, a2, a3, name, description, capabilities, create_ms, update_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		append(place(r.UID), r.Name, r.Description, string(caps), ms(r.CreateTime), ms(r.UpdateTime))...)
	if err != nil {
		return t.s.inserted(err, "role", r.Name, r.UID)
	}
	t.granted = append(t.granted, change{role: r.UID})
	return nil
}

// Role returns a role, or fault.NotFound.
func (s *Store) Role(ctx context.Context, uid resource.UID) (resource.Role, error) {
	return get(ctx, s, &roles, "role", uid)
}

// UpdateRole applies change to the role and returns the result, under the rules
// of UpdateGroup.
func (s *Store) UpdateRole(ctx context.Context, uid resource.UID, change func(*resource.Role) error) (r resource.Role, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &roles, "role", uid, s.engine.lock)
		if err != nil {
			return err
		}
		r = before
		if err := change(&r); err != nil {
			return err
		}
		r.UpdateTime = s.now()
		if err := t.updateRole(ctx, r); err != nil {
			return err
		}
		return t.emit(ctx, resource.RoleUpdated, uid, uid.Parent(), before, r)
	})
	return r, err
}

func (t *tx) updateRole(ctx context.Context, r resource.Role) error {
	caps, err := json.Marshal(r.Capabilities)
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	_, err = t.exec(ctx, `UPDATE roles SET name = $2, description = $3, capabilities = $4, update_ms = $5 WHERE uid = $1`,
		string(r.UID), r.Name, r.Description, string(caps), ms(r.UpdateTime))
	t.granted = append(t.granted, change{role: r.UID})
	return t.s.inserted(err, "role", r.Name, r.UID)
}

// roleUsers is what keeps a role from being deleted.
var roleUsers = []use{
	{"role_bindings", "role", "role bindings"},
	{"group_invites", "role", "group invites"},
	{"identity_providers", "default_role", "identity providers"},
	{"external_group_role_mappings", "role", "external group role mappings"},
}

// DeleteRole removes a role that nothing refers to. It returns
// fault.FailedPrecondition, naming the kinds, while something does, and
// fault.NotFound if there is no such role.
func (s *Store) DeleteRole(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		r, err := take(ctx, t, &roles, "role", uid, s.engine.lockKey)
		if err != nil {
			return err
		}
		users, err := t.users(ctx, uid, roleUsers)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fault.InUse("role", users...)
		}
		if _, err := t.exec(ctx, `DELETE FROM roles WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		t.granted = append(t.granted, change{role: uid})
		if err := t.emit(ctx, resource.RoleDeleted, uid, uid.Parent(), r, nil); err != nil {
			return err
		}
		return t.count(ctx, "roles", uid, -1)
	})
}

// Roles returns one page of roles.
func (s *Store) Roles(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.Role], error) {
	return list(ctx, s, &roles, r, f, p)
}

// SetManagedRoles brings the service's own roles to these. Replicas that start
// together do it one after the other.
func (s *Store) SetManagedRoles(ctx context.Context, managed []resource.Role) error {
	return s.write(ctx, func(t *tx) error {
		var one int
		if err := t.row(ctx, `SELECT 1 FROM revision AS t WHERE t.id = 1`+s.engine.lock, nil, &one); err != nil {
			return err
		}
		kept := map[resource.UID]resource.Role{}
		err := t.rows(ctx, `SELECT `+roles.columns+` FROM roles AS t WHERE t.parent IS NULL`, nil, func(row scanner) error {
			r, err := roles.scan(row)
			kept[r.UID] = r
			return err
		})
		if err != nil {
			return err
		}
		now := s.now()
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
