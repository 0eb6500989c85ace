package store

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var groups = listing[resource.Group]{
	kind:    "groups",
	columns: "t.uid, t.name, t.description, t.verified, t.kind, t.create_ms, t.update_ms",
	self:    true,
	orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	scan: func(row scanner) (g resource.Group, err error) {
		var uid string // database/sql is slow with types of our own
		var kind, created, updated int64
		err = row.Scan(&uid, &g.Name, &g.Description, &g.Verified, &kind, &created, &updated)
		g.UID, g.Kind = resource.UID(uid), resource.OrgKind(kind)
		g.CreateTime, g.UpdateTime = fromMS(created), fromMS(updated)
		return g, err
	},
	cursor: func(g resource.Group, col string) page.Cursor {
		return cursorAt(col, g.UID, g.Name, g.CreateTime, g.UpdateTime)
	},
}

// InsertGroup adds g, and with it, in one go, the bindings given: an
// organization has an owner from its first moment. A group below another takes
// over the kind of its organization. It returns fault.AlreadyExists if g's
// parent already has a group of that name, and fault.NotFound if g's parent is
// not there.
func (s *Store) InsertGroup(ctx context.Context, g resource.Group, with ...resource.RoleBinding) (resource.Group, error) {
	err := s.write(ctx, func(t *tx) error {
		if err := t.insertGroup(ctx, &g); err != nil {
			return err
		}
		for _, b := range with {
			if err := t.bind(ctx, b); err != nil {
				return err
			}
			if err := t.emit(ctx, resource.BindingCreated, b.UID, b.Group(), nil, b); err != nil {
				return err
			}
			if err := t.join(ctx, g.UID.Root(), b.Identity); err != nil { // whoever founds an organization is known to it
				return err
			}
		}
		return nil
	})
	return g, err
}

const groupInsert = `INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, create_ms, update_ms, kind)`

func groupArgs(g *resource.Group) []any {
	return append(place(g.UID), g.Name, g.Description, g.Verified, ms(g.CreateTime), ms(g.UpdateTime))
}

// insertGroup adds g. The kind of a group below another comes from its parent,
// in the same statement: a round trip less.
func (t *tx) insertGroup(ctx context.Context, g *resource.Group) error {
	var err error
	if p := g.UID.Parent(); p == "" {
		_, err = t.exec(ctx, groupInsert+t.s.engine.values(1, 12), append(groupArgs(g), int64(g.Kind))...)
	} else {
		err = t.row(ctx, groupInsert+` SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, t.kind FROM groups AS t WHERE t.uid = $12 RETURNING kind`,
			append(groupArgs(g), string(p)), &g.Kind)
		err = missing(err, "group", p)
	}
	if err != nil {
		return t.s.inserted(err, "group", g.Name, g.UID)
	}
	return t.added(ctx, "groups", resource.GroupCreated, g.UID, g.UID, *g)
}

// Group returns a group, or fault.NotFound.
func (s *Store) Group(ctx context.Context, uid resource.UID) (resource.Group, error) {
	return get(ctx, s, &groups, "group", uid)
}

// GroupBySuffix returns the group whose UID ends in suffix, which is one or
// more whole segments, or fault.NotFound.
func (s *Store) GroupBySuffix(ctx context.Context, suffix string) (resource.Group, error) {
	var uid resource.UID
	err := s.row(ctx, `SELECT uid FROM groups WHERE seg = $1`, []any{segment(resource.UID(suffix))}, &uid)
	if err == nil && uid != resource.UID(suffix) && !strings.HasSuffix(string(uid), "/"+suffix) {
		return resource.Group{}, fault.Missing("group", suffix)
	}
	if err != nil {
		return resource.Group{}, missing(err, "group", resource.UID(suffix))
	}
	return s.Group(ctx, uid)
}

// Organization returns the root group of that name, or fault.NotFound.
func (s *Store) Organization(ctx context.Context, name string) (resource.Group, error) {
	var uid resource.UID
	if err := s.row(ctx, `SELECT uid FROM groups WHERE parent IS NULL AND name = $1`, []any{name}, &uid); err != nil {
		return resource.Group{}, missing(err, "organization", resource.UID(name))
	}
	return s.Group(ctx, uid)
}

// UpdateGroup applies change to the group and returns the result. Concurrent
// updates of one group happen one after the other. It returns fault.NotFound if
// there is no such group, fault.AlreadyExists if a sibling has its new name,
// and change's own error, with nothing written, if it has one. change may run
// more than once.
func (s *Store) UpdateGroup(ctx context.Context, uid resource.UID, change func(*resource.Group) error) (g resource.Group, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &groups, "group", uid, s.engine.lock)
		if err != nil {
			return err
		}
		g = before
		if err := change(&g); err != nil {
			return err
		}
		g.UpdateTime = s.now()
		if _, err := t.exec(ctx, `UPDATE groups SET name = $2, description = $3, verified = $4, update_ms = $5 WHERE uid = $1`,
			string(uid), g.Name, g.Description, g.Verified, ms(g.UpdateTime)); err != nil {
			return s.inserted(err, "group", g.Name, uid)
		}
		if g.Name != before.Name {
			t.repathed()
		}
		return t.emit(ctx, resource.GroupUpdated, uid, uid, before, g)
	})
	return g, err
}

// DeleteGroup removes an empty group. It returns fault.FailedPrecondition,
// naming the kinds, while anything is left inside; but the bindings of caller
// on an organization go with it. It returns fault.NotFound if there is no such
// group.
func (s *Store) DeleteGroup(ctx context.Context, uid, caller resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		g, err := take(ctx, t, &groups, "group", uid, s.engine.lockKey)
		if err != nil {
			return err
		}
		if uid.IsRoot() {
			if err := t.leave(ctx, uid, caller); err != nil {
				return err
			}
		}
		held, err := t.users(ctx, uid, groupChildren)
		if err != nil {
			return err
		}
		if len(held) > 0 {
			return fault.NotEmpty("group", held...)
		}
		if _, err := t.exec(ctx, `DELETE FROM registry_settings WHERE grp = $1`, segment(uid)); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `DELETE FROM groups WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		t.repathed()
		if err := t.emit(ctx, resource.GroupDeleted, uid, uid.Parent(), g, nil); err != nil {
			return err
		}
		if err := t.count(ctx, "groups", uid, -1); err != nil {
			return err
		}
		return t.uncount(ctx, uid)
	})
}

// groupChildren is what keeps a group from being deleted.
var groupChildren = []use{
	{"groups", "parent", "groups"},
	{"identities", "parent", "identities"},
	{"roles", "parent", "roles"},
	{"role_bindings", "parent", "role bindings"},
	{"identity_providers", "parent", "identity providers"},
	{"account_associations", "seg", "account associations"},
	{"group_invites", "parent", "group invites"},
	{"repos", "parent", "repos"},
	{"advisories", "parent", "advisories"},
	{"advisory_feeds", "parent", "advisory feeds"},
	{"accounts", "parent", "accounts"},
	{"subscriptions", "parent", "subscriptions"},
}

// leave removes the caller's own bindings on an organization, if nobody else
// has any: then the organization can go.
func (t *tx) leave(ctx context.Context, uid, caller resource.UID) error {
	var others int
	if err := t.row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND identity <> $2`, []any{segment(uid), string(caller)}, &others); err != nil || others > 0 {
		return err
	}
	return t.unbind(ctx, `t.parent = $1 AND t.identity = $2`, segment(uid), string(caller))
}

// Groups returns one page of groups.
func (s *Store) Groups(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.Group], error) {
	return list(ctx, s, &groups, r, f, p)
}

// RequestAccess records that a person asks to join a group. It returns
// fault.ResourceExhausted if the last time is not as long ago as pause.
func (s *Store) RequestAccess(ctx context.Context, uid resource.UID, by resource.Identity, pause time.Duration) error {
	return s.write(ctx, func(t *tx) error {
		now := s.now()
		n, err := t.exec(ctx, `
			INSERT INTO access_requests (identity, at_ms) VALUES ($1, $2)
			ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms WHERE access_requests.at_ms <= $3`,
			string(by.UID), ms(now), ms(now.Add(-pause)))
		if err != nil {
			return err
		}
		if n == 0 {
			f := fault.New(fault.ResourceExhausted, "Resource exhausted: access was requested less than %s ago", pause)
			f.RetryIn = pause
			return f
		}
		return t.emit(ctx, resource.GroupAccessRequested, uid, uid, nil, by)
	})
}
