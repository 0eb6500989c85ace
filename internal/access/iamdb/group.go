package iamdb

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/namedb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

var groups = store.Kind[resource.Group]{
	Table: "groups", Label: "group", GroupUID: true,
	Created: resource.GroupCreated, Updated: resource.GroupUpdated, Deleted: resource.GroupDeleted,
	Columns: func(g *resource.Group) []store.Column {
		return []store.Column{
			store.Key(&g.UID),
			store.Text("name", &g.Name).Order("name"),
			store.Text("display_name", &g.DisplayName),
			store.Text("description", &g.Description),
			store.Flag("verified", &g.Verified),
			store.Number("kind", &g.Kind).Fixed(),
			store.Time("create_ms", &g.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &g.UpdateTime).Order("update_time"),
		}
	},
}

// InsertGroup adds g and the given bindings in one transaction, so that an organization has an owner from its first
// moment. The identities of the bindings become members of the organization. If g is not an organization, it gets the
// kind of its organization. InsertGroup returns fault.AlreadyExists if g's parent already has a group with that name,
// or if g is an organization whose name is reserved for another. It returns fault.NotFound if g's parent does not
// exist.
func (s *Store) InsertGroup(
	ctx context.Context, g resource.Group, bindings ...resource.RoleBinding,
) (resource.Group, error) {
	err := s.write(ctx, func(t Tx) error { return t.insertGroupWith(ctx, &g, bindings) })
	return g, err
}

func (t Tx) insertGroupWith(ctx context.Context, g *resource.Group, bindings []resource.RoleBinding) error {
	if err := t.InsertGroup(ctx, g); err != nil {
		return err
	}
	for _, b := range bindings {
		if err := t.bind(ctx, b); err != nil {
			return err
		}
		if err := t.AddMember(ctx, g.UID.Root(), b.Identity); err != nil {
			return err
		}
	}
	return nil
}

// InsertGroup is Store.InsertGroup inside a transaction, without bindings. It sets g.Kind.
func (t Tx) InsertGroup(ctx context.Context, g *resource.Group) error {
	if p := g.UID.Parent(); p != "" {
		err := t.Row(ctx, `SELECT t.kind FROM groups AS t WHERE t.uid = $1`+t.DB.Engine.ForShare, []any{string(p)}, &g.Kind)
		if err != nil {
			return store.Missing(err, "group", p)
		}
	}
	if err := store.Insert(ctx, t.Tx, &groups, *g); err != nil || !g.UID.IsRoot() {
		return err
	}
	return namedb.In(t.Tx).Claim(ctx, *g)
}

// EnsureGroups returns the group at a path of names below parent. It creates either all or none of the groups of the
// path that are missing. It returns fault.NotFound if parent does not exist.
func (s *Store) EnsureGroups(ctx context.Context, parent resource.UID, names []string) (group resource.UID, err error) {
	for range 3 {
		err = s.write(ctx, func(t Tx) (err error) {
			if err := t.RequireGroup(ctx, parent); err != nil {
				return err
			}
			group = parent
			for _, name := range names {
				if group, err = t.ensureGroup(ctx, group, name); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, fault.AlreadyExists) { // otherwise a concurrent call has created it, and the next try finds it
			break
		}
	}
	return group, err
}

// ensureGroup returns the group with a name in parent, and creates it if it is missing. The caller holds a lock on
// parent.
func (t Tx) ensureGroup(ctx context.Context, parent resource.UID, name string) (uid resource.UID, err error) {
	err = t.Row(ctx, `SELECT t.uid FROM groups AS t WHERE t.parent = $1 AND t.name = $2`+t.DB.Engine.ForShare,
		[]any{store.Segment(parent), name}, &uid)
	if !errors.Is(err, sql.ErrNoRows) {
		return uid, err
	}
	g := resource.Group{UID: parent.NewChild(), Name: name, CreateTime: t.DB.Time()}
	g.UpdateTime = g.CreateTime
	return g.UID, t.InsertGroup(ctx, &g)
}

// Group returns a group, or fault.NotFound.
func (s *Store) Group(ctx context.Context, uid resource.UID) (resource.Group, error) {
	return store.Get(ctx, s.DB, &groups, uid)
}

// Group is Store.Group inside a transaction.
func (t Tx) Group(ctx context.Context, uid resource.UID) (resource.Group, error) {
	return store.One(ctx, t.Rows, &groups, uid, ` WHERE t.uid = $1`, string(uid))
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

// Organization returns the root group with a name, or fault.NotFound.
func (s *Store) Organization(ctx context.Context, name string) (resource.Group, error) {
	var uid resource.UID
	if err := s.Row(ctx, `SELECT uid FROM groups WHERE parent IS NULL AND name = $1`, []any{name}, &uid); err != nil {
		return resource.Group{}, store.Missing(err, "organization", resource.UID(name))
	}
	return s.Group(ctx, uid)
}

// UpdateGroup replaces before by after. It returns store.ErrStale if the stored group
// differs from before, and fault.AlreadyExists if a sibling has its new name. If an organization gets another name,
// its previous name stays reserved for it. UpdateGroup returns fault.AlreadyExists if the new name is reserved for
// another organization, and fault.FailedPrecondition if the organization has changed its name too often.
func (s *Store) UpdateGroup(ctx context.Context, before, after resource.Group) (resource.Group, error) {
	err := s.write(ctx, func(t Tx) error {
		if after.Name != before.Name {
			t.PathsChanged()
		}
		if err := store.Update(ctx, t.Tx, &groups, before, &after); err != nil {
			return err
		}
		if after.UID.IsRoot() && after.Name != before.Name {
			return namedb.In(t.Tx).Rename(ctx, before, after)
		}
		return nil
	})
	return after, err
}

// DeleteGroup removes an empty group; rules says what each table does with the rows of the group. It returns
// fault.FailedPrecondition, naming the kinds, while the group contains anything. Expired bindings do not count, and
// neither do the bindings of caller on an organization; they are deleted with the group. The name of an organization
// stays reserved for caller. DeleteGroup returns fault.NotFound if there is no such group.
func (t Tx) DeleteGroup(ctx context.Context, uid, caller resource.UID, rules []grouprule.Rule) error {
	g, err := store.Lock(ctx, t.Tx, &groups, uid, t.DB.Engine.ForDelete)
	if err != nil {
		return err
	}
	if err := t.deleteExpired(ctx, `t.parent = $1`, store.Segment(uid)); err != nil {
		return err
	}
	if uid.IsRoot() {
		if err := t.deleteOwnBindings(ctx, uid, caller); err != nil {
			return err
		}
		if err := t.deletePayer(ctx, uid); err != nil {
			return err
		}
	}
	if err := grouprule.Apply(ctx, t.Tx, uid, rules); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM groups WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	t.PathsChanged()
	if uid.IsRoot() {
		if err := namedb.In(t.Tx).Inherit(ctx, g, caller); err != nil {
			return err
		}
	}
	if err := t.Removed(ctx, "groups", resource.GroupDeleted, uid, uid.Parent(), g); err != nil {
		return err
	}
	return t.DropCounters(ctx, uid)
}

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	return []grouprule.Rule{
		grouprule.Blocks("groups", "parent", "groups"),
		grouprule.Blocks("identities", "parent", "identities"),
		grouprule.Blocks("roles", "parent", "roles"),
		grouprule.Blocks("role_bindings", "parent", "role bindings"), // DeleteGroup removes expired role bindings first
		grouprule.Blocks("identity_providers", "parent", "identity providers"),
		grouprule.Blocks("account_associations", "seg", "account associations"),
		grouprule.Blocks("group_invites", "parent", "group invites"),
		grouprule.DeletesKind("access_rules"),
		grouprule.Deletes("role_requests", func(ctx context.Context, t *store.Tx, group resource.UID) error {
			return In(t).closeRequests(ctx, group)
		}),
		grouprule.Blocks("payers", "payer", "organizations that it pays for"), // DeleteGroup removes its own row first
		grouprule.Cascades("joins"),
		grouprule.Cascades("members"),
	}
}

// deleteOwnBindings removes the caller's bindings on an organization if no other identity
// has one, so that the organization can be deleted.
func (t Tx) deleteOwnBindings(ctx context.Context, uid, caller resource.UID) error {
	var others int
	if err := t.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND identity <> $2`,
		[]any{store.Segment(uid), string(caller)}, &others); err != nil || others > 0 {
		return err
	}
	return t.deleteBindings(ctx, `t.parent = $1 AND t.identity = $2`, store.Segment(uid), string(caller))
}

// Groups returns one page of groups.
func (s *Store) Groups(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Group], error) {
	return store.List(ctx, s.DB, &groups, r, f, p)
}

// RequestAccess records that a person asks to join a group. It returns
// fault.ResourceExhausted if the person's last request is less than pause ago.
func (s *Store) RequestAccess(ctx context.Context, uid resource.UID, by resource.Identity, pause time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		currentTime := s.Time()
		n, err := t.Exec(ctx, `
			INSERT INTO access_requests (identity, at_ms) VALUES ($1, $2)
			ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms WHERE access_requests.at_ms <= $3`,
			string(by.UID), store.MS(currentTime), store.MS(currentTime.Add(-pause)))
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
