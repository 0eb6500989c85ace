package iamdb

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var groups = store.Kind[resource.Group]{
	Table:   "groups",
	Columns: "t.uid, t.name, t.description, t.verified, t.kind, t.create_ms, t.update_ms",
	Self:    true,
	Orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (g resource.Group, err error) {
		var uid string // database/sql is slow with types of our own
		var kind, created, updated int64
		err = row.Scan(&uid, &g.Name, &g.Description, &g.Verified, &kind, &created, &updated)
		g.UID, g.Kind = resource.UID(uid), resource.OrgKind(kind)
		g.CreateTime, g.UpdateTime = store.FromMS(created), store.FromMS(updated)
		return g, err
	},
	Cursor: func(g resource.Group, col string) page.Cursor {
		return store.CursorAt(col, g.UID, g.Name, g.CreateTime, g.UpdateTime)
	},
}

// InsertGroup adds g, and with it, in one go, the bindings given: an
// organization has an owner from its first moment. A group below another takes
// over the kind of its organization. It returns fault.AlreadyExists if g's
// parent already has a group of that name, and fault.NotFound if g's parent is
// not there.
func (s *Store) InsertGroup(ctx context.Context, g resource.Group, with ...resource.RoleBinding) (resource.Group, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.InsertGroup(ctx, &g); err != nil {
			return err
		}
		for _, b := range with {
			if err := t.bind(ctx, b); err != nil {
				return err
			}
			if err := t.Emit(ctx, resource.BindingCreated, b.UID, b.Group(), nil, b); err != nil {
				return err
			}
			if err := t.AddMember(ctx, g.UID.Root(), b.Identity); err != nil { // whoever founds an organization is known to it
				return err
			}
		}
		return nil
	})
	return g, err
}

const groupInsert = `INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, create_ms, update_ms, kind)`

func groupArgs(g *resource.Group) []any {
	return append(store.TreeColumns(g.UID), g.Name, g.Description, g.Verified, store.MS(g.CreateTime), store.MS(g.UpdateTime))
}

// InsertGroup adds g. The kind of a group below another comes from its parent,
// in the same statement: a round trip less.
func (t Tx) InsertGroup(ctx context.Context, g *resource.Group) error {
	var err error
	if p := g.UID.Parent(); p == "" {
		_, err = t.Exec(ctx, groupInsert+t.DB.Engine.Values(1, 12), append(groupArgs(g), int64(g.Kind))...)
	} else {
		err = t.Row(ctx, groupInsert+` SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, t.kind FROM groups AS t WHERE t.uid = $12 RETURNING kind`,
			append(groupArgs(g), string(p)), &g.Kind)
		err = store.Missing(err, "group", p)
	}
	if err != nil {
		return t.DB.Inserted(err, "group", g.Name, g.UID)
	}
	return t.Added(ctx, "groups", resource.GroupCreated, g.UID, g.UID, *g)
}

// Group returns a group, or fault.NotFound.
func (s *Store) Group(ctx context.Context, uid resource.UID) (resource.Group, error) {
	return store.Get(ctx, s.DB, &groups, "group", uid)
}

// GroupBySuffix returns the group whose UID ends in suffix, which is one or
// more whole segments, or fault.NotFound.
func (s *Store) GroupBySuffix(ctx context.Context, suffix string) (resource.Group, error) {
	var uid resource.UID
	err := s.Row(ctx, `SELECT uid FROM groups WHERE seg = $1`, []any{store.Segment(resource.UID(suffix))}, &uid)
	if err == nil && uid != resource.UID(suffix) && !strings.HasSuffix(string(uid), "/"+suffix) {
		return resource.Group{}, fault.Missing("group", suffix)
	}
	if err != nil {
		return resource.Group{}, store.Missing(err, "group", resource.UID(suffix))
	}
	return s.Group(ctx, uid)
}

// Organization returns the root group of that name, or fault.NotFound.
func (s *Store) Organization(ctx context.Context, name string) (resource.Group, error) {
	var uid resource.UID
	if err := s.Row(ctx, `SELECT uid FROM groups WHERE parent IS NULL AND name = $1`, []any{name}, &uid); err != nil {
		return resource.Group{}, store.Missing(err, "organization", resource.UID(name))
	}
	return s.Group(ctx, uid)
}

// UpdateGroup applies change to the group and returns the result. Concurrent
// updates of one group happen one after the other. It returns fault.NotFound if
// there is no such group, fault.AlreadyExists if a sibling has its new name,
// and change's own error, with nothing written, if it has one. change may run
// more than once.
func (s *Store) UpdateGroup(ctx context.Context, uid resource.UID, change func(*resource.Group) error) (g resource.Group, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &groups, "group", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		g = before
		if err := change(&g); err != nil {
			return err
		}
		g.UpdateTime = s.Time()
		if _, err := t.Exec(ctx, `UPDATE groups SET name = $2, description = $3, verified = $4, update_ms = $5 WHERE uid = $1`,
			string(uid), g.Name, g.Description, g.Verified, store.MS(g.UpdateTime)); err != nil {
			return s.Inserted(err, "group", g.Name, uid)
		}
		if g.Name != before.Name {
			t.PathsChanged()
		}
		return t.Emit(ctx, resource.GroupUpdated, uid, uid, before, g)
	})
	return g, err
}

// DeleteGroup removes an empty group. It returns fault.FailedPrecondition,
// naming the kinds, while anything is left inside; but the bindings of caller
// on an organization go with it. It returns fault.NotFound if there is no such
// group.
func (s *Store) DeleteGroup(ctx context.Context, uid, caller resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		g, err := store.Lock(ctx, t.Tx, &groups, "group", uid, s.Engine.LockKey)
		if err != nil {
			return err
		}
		if uid.IsRoot() {
			if err := t.leave(ctx, uid, caller); err != nil {
				return err
			}
		}
		held, err := t.Users(ctx, uid, groupChildren)
		if err != nil {
			return err
		}
		if len(held) > 0 {
			return fault.NotEmpty("group", held...)
		}
		if _, err := t.Exec(ctx, `DELETE FROM registry_settings WHERE grp = $1`, store.Segment(uid)); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM groups WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		t.PathsChanged()
		if err := t.Emit(ctx, resource.GroupDeleted, uid, uid.Parent(), g, nil); err != nil {
			return err
		}
		if err := t.Count(ctx, "groups", uid, -1); err != nil {
			return err
		}
		return t.Uncount(ctx, uid)
	})
}

// groupChildren is what keeps a group from being deleted.
var groupChildren = []store.Use{
	{Table: "groups", Column: "parent", Label: "groups"},
	{Table: "identities", Column: "parent", Label: "identities"},
	{Table: "roles", Column: "parent", Label: "roles"},
	{Table: "role_bindings", Column: "parent", Label: "role bindings"},
	{Table: "identity_providers", Column: "parent", Label: "identity providers"},
	{Table: "account_associations", Column: "seg", Label: "account associations"},
	{Table: "group_invites", Column: "parent", Label: "group invites"},
	{Table: "repos", Column: "parent", Label: "repos"},
	{Table: "advisories", Column: "parent", Label: "advisories"},
	{Table: "advisory_feeds", Column: "parent", Label: "advisory feeds"},
	{Table: "accounts", Column: "parent", Label: "accounts"},
	{Table: "subscriptions", Column: "parent", Label: "subscriptions"},
}

// leave removes the caller's own bindings on an organization, if nobody else
// has any: then the organization can go.
func (t Tx) leave(ctx context.Context, uid, caller resource.UID) error {
	var others int
	if err := t.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND identity <> $2`, []any{store.Segment(uid), string(caller)}, &others); err != nil || others > 0 {
		return err
	}
	return t.unbind(ctx, `t.parent = $1 AND t.identity = $2`, store.Segment(uid), string(caller))
}

// Groups returns one page of groups.
func (s *Store) Groups(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.Group], error) {
	return store.List(ctx, s.DB, &groups, r, f, p)
}

// RequestAccess records that a person asks to join a group. It returns
// fault.ResourceExhausted if the last time is not as long ago as pause.
func (s *Store) RequestAccess(ctx context.Context, uid resource.UID, by resource.Identity, pause time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		now := s.Time()
		n, err := t.Exec(ctx, `
			INSERT INTO access_requests (identity, at_ms) VALUES ($1, $2)
			ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms WHERE access_requests.at_ms <= $3`,
			string(by.UID), store.MS(now), store.MS(now.Add(-pause)))
		if err != nil {
			return err
		}
		if n == 0 {
			f := fault.New(fault.ResourceExhausted, "Resource exhausted: access was requested less than %s ago", pause)
			f.RetryIn = pause
			return f
		}
		return t.Emit(ctx, resource.GroupAccessRequested, uid, uid, nil, by)
	})
}
