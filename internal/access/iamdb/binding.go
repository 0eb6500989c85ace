package iamdb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// bindings are read with their identity, group and role.
var bindings = store.Kind[resource.BoundRole]{
	Table: "role_bindings", Label: "role binding",
	// A group and a role there always are; but SQLite would start from them
	// unless the joins are outer ones, and lose the order.
	Joins: ` LEFT JOIN groups AS g ON g.seg = t.parent LEFT JOIN roles AS r ON r.seg = t.role
		LEFT JOIN identities AS i ON i.uid = t.identity`,
	Columns: func(b *resource.BoundRole) []store.Column {
		i, g, r := &b.IdentityInfo, &b.GroupInfo, &b.RoleInfo
		return append(bareBindings.Columns(&b.RoleBinding),
			store.Text("", &i.UID).From("t.identity"),
			store.Text("", &i.Name).From("i.name"),
			store.Text("", &i.DisplayName).From("i.display_name"),
			store.Text("", &i.Description).From("i.description"),
			store.Text("", &i.Issuer).From("i.issuer"),
			store.Text("", &i.Subject).From("i.subject"),
			store.Text("", &i.Email).From("i.email"),
			store.Flag("", &i.Member).From("EXISTS (SELECT 1 FROM members AS m WHERE m.org = t.a1 AND m.identity = t.identity)"),
			store.Text("", &g.UID).From("g.uid"),
			store.Text("", &g.Name).From("g.name"),
			store.Text("", &g.DisplayName).From("g.display_name"),
			store.Text("", &g.Description).From("g.description"),
			store.Text("", &r.UID).From("r.uid"),
			store.Text("", &r.Name).From("r.name"),
			store.Text("", &r.Description).From("r.description"))
	},
}

// bareBindings are read without their identity, group and role.
var bareBindings = store.Kind[resource.RoleBinding]{
	Table: "role_bindings", Label: "role binding",
	Columns: func(b *resource.RoleBinding) []store.Column {
		return []store.Column{
			store.Key(&b.UID),
			store.Text("identity", &b.Identity),
			store.Ref("role", "roles", &b.Role),
			store.Time("create_ms", &b.CreateTime).Order("create_time"),
			store.OptionalTime("start_ms", &b.StartTime),
			store.OptionalTime("expire_ms", &b.ExpireTime),
			store.OptionalTime("end_ms", &b.EndTime),
			store.Text("reason", &b.Reason),
		}
	},
}

// counts is the condition that a binding counts at the time that a parameter has, in milliseconds. lasts adds that it
// has no end.
func counts(at string) string {
	return `start_ms <= ` + at + ` AND end_ms = 0 AND (expire_ms = 0 OR expire_ms > ` + at + `)`
}

func lasts(at string) string { return `start_ms <= ` + at + ` AND end_ms = 0 AND expire_ms = 0` }

// now returns the time of the database in milliseconds, as far as this process knows.
func (s *Store) now() int64 {
	_, latest := s.Clock()
	return store.MS(latest)
}

// InsertBinding is InsertBindings for one binding, with the event of one.
func (s *Store) InsertBinding(
	ctx context.Context, b resource.RoleBinding, unseen ...resource.UID,
) (resource.BoundRole, error) {
	out, err := s.insertBindings(ctx, []resource.RoleBinding{b}, unseen, func(t Tx) error {
		return t.Emit(ctx, resource.BindingCreated, b.UID, b.Group(), nil, b)
	})
	if err != nil {
		return resource.BoundRole{}, err
	}
	return out[0], nil
}

// InsertBindings adds bindings of one group, all or none, and returns them with
// their identities, group and roles. It returns fault.NotFound if the group, a role
// or an identity does not exist, and fault.AlreadyExists if there is such a binding
// already, with the same start and end. An identity need not exist if it is a person's, or if it is in unseen,
// because the caller must not learn whether it exists.
func (s *Store) InsertBindings(
	ctx context.Context, all []resource.RoleBinding, unseen ...resource.UID,
) ([]resource.BoundRole, error) {
	if len(all) == 0 {
		return nil, nil
	}
	return s.insertBindings(ctx, all, unseen, func(t Tx) error {
		return t.Emit(ctx, resource.BindingsCreated, all[0].Group(), all[0].Group(), nil, all)
	})
}

func (s *Store) insertBindings(
	ctx context.Context, all []resource.RoleBinding, unseen []resource.UID, emit func(Tx) error,
) (out []resource.BoundRole, _ error) {
	err := s.write(ctx, func(t Tx) error {
		out = nil
		if err := t.RequireGroup(ctx, all[0].Group()); err != nil {
			return err
		}
		for _, b := range all {
			if err := t.bindable(ctx, b, unseen); err != nil {
				return err
			}
			if err := t.insertBinding(ctx, b); err != nil {
				return err
			}
			bound, err := store.Lock(ctx, t.Tx, &bindings, b.UID, "")
			if err != nil {
				return err
			}
			out = append(out, bound)
		}
		if err := emit(t); err != nil {
			return err
		}
		return t.Count(ctx, "role_bindings", all[0].UID, len(all))
	})
	return out, err
}

// bind adds a binding with its event and its count.
func (t Tx) bind(ctx context.Context, b resource.RoleBinding) error {
	if err := t.insertBinding(ctx, b); err != nil {
		return err
	}
	return t.Added(ctx, "role_bindings", resource.BindingCreated, b.UID, b.Group(), b)
}

// bindable holds what a binding refers to until the commit.
func (t Tx) bindable(ctx context.Context, b resource.RoleBinding, unseen []resource.UID) error {
	if err := t.RequireRole(ctx, b.Role); err != nil {
		return err
	}
	if b.Identity.IsRoot() { // a person, who may not have signed in yet
		return nil
	}
	err := t.Require(ctx, "identities", "identity", b.Identity)
	if errors.Is(err, fault.NotFound) && slices.Contains(unseen, b.Identity) {
		return nil
	}
	return err
}

func (t Tx) insertBinding(ctx context.Context, b resource.RoleBinding) error {
	t.IdentitiesChanged(b.Identity)
	return t.bindingError(store.InsertRow(ctx, t.Tx, &bareBindings, b), b)
}

// bindingError turns the refusal of a binding into a fault.
func (t Tx) bindingError(err error, b resource.RoleBinding) error {
	if f := (*fault.Error)(nil); t.DB.Duplicate(err) || errors.As(err, &f) && f.Code == fault.AlreadyExists {
		f := fault.Exists("role binding", string(b.Identity))
		f.Message = "Already exists: a binding of this identity to this role in this group"
		f.Cause = err
		return f
	}
	return t.DB.ConstraintFault(err, "role binding", string(b.Identity), b.UID)
}

// Binding returns a binding with its identity, group and role, or fault.NotFound.
func (s *Store) Binding(ctx context.Context, uid resource.UID) (resource.BoundRole, error) {
	return store.Get(ctx, s.DB, &bindings, uid)
}

// UpdateBinding applies change to the binding and returns the result, under the
// rules of UpdateGroup and of InsertBindings. It returns
// fault.FailedPrecondition if the binding is over, or if the organization would
// lose its last owner without an end.
func (s *Store) UpdateBinding(
	ctx context.Context, uid resource.UID, change func(*resource.RoleBinding) error,
) (out resource.BoundRole, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &bareBindings, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		now, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		if before.State(now) == resource.BindingOver {
			return fault.Unmet("BINDING_OVER", "the binding is over: create another")
		}
		b := before
		if err := change(&b); err != nil {
			return err
		}
		if err := t.bindable(ctx, b, []resource.UID{before.Identity}); err != nil {
			return err
		}
		if b.Role != resource.OwnerRole || b.Timed() {
			if err := t.requireOwners(ctx, `uid = $1`, uid); err != nil {
				return err
			}
		}
		if err := t.updateBinding(ctx, b); err != nil {
			return err
		}
		t.IdentitiesChanged(before.Identity, b.Identity)
		if err := t.Emit(ctx, resource.BindingUpdated, uid, uid.Parent(), before, b); err != nil {
			return err
		}
		out, err = store.Lock(ctx, t.Tx, &bindings, uid, "")
		return err
	})
	return out, err
}

// updateBinding writes what can be changed of a binding.
func (t Tx) updateBinding(ctx context.Context, b resource.RoleBinding) error {
	ms := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return store.MS(at)
	}
	_, err := t.Exec(ctx, `UPDATE role_bindings SET identity = $2, role = $3, start_ms = $4, expire_ms = $5, reason = $6
		WHERE uid = $1`, string(b.UID), string(b.Identity), store.Segment(b.Role), ms(b.StartTime), ms(b.ExpireTime), b.Reason)
	if err != nil {
		return t.bindingError(err, b)
	}
	return nil
}

// EndBindings records up to n bindings that are over, each with its event, once whichever replica does it, and
// returns how many it was. Those that another transaction changes are left for the next time. That a binding is over
// does not depend on it.
func (s *Store) EndBindings(ctx context.Context, n int) (ended int, _ error) {
	due, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM role_bindings
		WHERE expire_ms > 0 AND end_ms = 0 AND expire_ms <= $1 LIMIT 1`, s.now())
	if err != nil || len(due) == 0 { // as nearly always
		return 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		now, lock, err := t.dueLock(ctx)
		if err != nil {
			return err
		}
		due, err := bareBindings.All(ctx, t.Rows, ` WHERE t.expire_ms > 0 AND t.end_ms = 0 AND t.expire_ms <= $1
			ORDER BY t.expire_ms LIMIT $2`+lock, store.MS(now), n)
		if err != nil {
			return err
		}
		ended = len(due)
		for _, b := range due {
			if err := t.endBinding(ctx, b, now); err != nil {
				return err
			}
		}
		return nil
	})
	return ended, err
}

// dueLock returns the time by which something is over, and the end of a query that locks it but for what another
// transaction changes.
func (t Tx) dueLock(ctx context.Context) (now time.Time, lock string, err error) {
	if now, err = t.Clock(ctx); err != nil {
		return now, "", err
	}
	lock = t.DB.Engine.ForUpdate
	if t.DB.Engine.Postgres {
		lock += ` SKIP LOCKED`
	}
	return now, lock, nil
}

// endBinding records that a binding is over. The organization of its group is told.
func (t Tx) endBinding(ctx context.Context, b resource.RoleBinding, now time.Time) error {
	before := b
	b.EndTime = now
	if _, err := t.Exec(ctx, `UPDATE role_bindings SET end_ms = $2 WHERE uid = $1`, string(b.UID), store.MS(now)); err != nil {
		return err
	}
	t.IdentitiesChanged(b.Identity)
	return t.Emit(ctx, resource.BindingExpired, b.UID, b.Group(), before, b)
}

// deleteOver removes the bindings that are over of those that a condition selects by a segment. They keep nothing
// from being deleted.
func (t Tx) deleteOver(ctx context.Context, where string, seg int64) error {
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	return t.unbind(ctx, where+` AND t.expire_ms > 0 AND t.expire_ms <= $2`, seg, store.MS(now))
}

// DeleteBinding removes a binding. One that is not there is gone already. It
// returns fault.FailedPrecondition if the organization would lose its last
// owner.
func (s *Store) DeleteBinding(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error { return t.DeleteBinding(ctx, uid) })
}

// DeleteBinding is Store.DeleteBinding inside a transaction, which can go on if it
// is refused.
func (t Tx) DeleteBinding(ctx context.Context, uid resource.UID) error {
	if err := t.requireOwners(ctx, `uid = $1`, uid); err != nil {
		return err
	}
	return t.unbind(ctx, `t.uid = $1`, string(uid))
}

// Owns reports whether an identity is an owner of an organization now.
func (s *Store) Owns(ctx context.Context, org, identity resource.UID) (bool, error) {
	var n int
	err := s.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND role = $2 AND identity = $3 AND `+counts("$4"),
		[]any{store.Segment(org), store.Segment(resource.OwnerRole), string(identity), s.now()}, &n)
	return n > 0, err
}

// OwnersOf returns the identities that own an organization now.
func (s *Store) OwnersOf(ctx context.Context, org resource.UID) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows,
		`SELECT DISTINCT identity FROM role_bindings WHERE parent = $1 AND role = $2 AND `+counts("$3")+` ORDER BY identity`,
		store.Segment(org), store.Segment(resource.OwnerRole), s.now())
}

// unbind removes the bindings a condition selects, with their events.
func (t Tx) unbind(ctx context.Context, where string, args ...any) error {
	gone, err := bareBindings.All(ctx, t.Rows, ` WHERE `+where+` ORDER BY t.uid`+t.DB.Engine.ForDelete, args...)
	if err != nil {
		return err
	}
	for _, b := range gone {
		if n, err := t.Exec(ctx, `DELETE FROM role_bindings WHERE uid = $1`, string(b.UID)); err != nil || n == 0 {
			return err
		}
		t.IdentitiesChanged(b.Identity)
		if err := t.Removed(ctx, "role_bindings", resource.BindingDeleted, b.UID, b.Group(), b); err != nil {
			return err
		}
	}
	return nil
}

// requireOwners returns fault.FailedPrecondition if an organization would have no
// owner without an end left without the bindings a condition selects by a uid.
func (t Tx) requireOwners(ctx context.Context, where string, uid resource.UID) error {
	alone, err := t.ownedAlone(ctx, where, uid)
	if err == nil && len(alone) > 0 {
		err = lastOwner(alone[0], uid.Ancestor(1))
	}
	return err
}

// lastOwner is the refusal to leave an organization without an owner. It names
// the organization only if it is the one that the caller acts in: who may delete
// an identity need not see what it owns.
func lastOwner(org, own resource.UID) error {
	if org == own {
		return fault.Unmet("LAST_OWNER", "the organization %s would have no owner left without an end", org)
	}
	return fault.Unmet("LAST_OWNER", "another organization would have no owner left without an end")
}

// ownedAlone returns the organizations that would have no owner left without the
// bindings a condition selects by a uid. An owner who has not begun yet, or whose
// ownership ends, does not count. It locks them, so that two owners cannot
// leave one at the same time.
func (t Tx) ownedAlone(ctx context.Context, where string, uid resource.UID) (alone []resource.UID, _ error) {
	arg := string(uid)
	owner := store.Segment(resource.OwnerRole)
	now, err := t.Clock(ctx)
	if err != nil {
		return nil, err
	}
	orgs, err := store.ReadColumn[resource.UID](ctx, t.Rows,
		`SELECT t.uid FROM groups AS t WHERE t.parent IS NULL AND t.seg IN
		(SELECT parent FROM role_bindings WHERE `+where+` AND role = $2 AND `+lasts("$3")+`) ORDER BY t.uid`+t.DB.Engine.ForUpdate,
		arg, owner, store.MS(now))
	if err != nil {
		return nil, err
	}
	for _, org := range orgs {
		var left int
		err := t.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $3 AND role = $2 AND NOT (`+where+`)
			AND `+lasts("$4"), []any{arg, owner, store.Segment(org), store.MS(now)}, &left)
		if err != nil {
			return nil, err
		}
		if left == 0 {
			alone = append(alone, org)
		}
	}
	return alone, nil
}

// AddMember records that a person has joined an organization by an act of their own.
func (t Tx) AddMember(ctx context.Context, org, identity resource.UID) error {
	_, err := t.Exec(ctx, `INSERT INTO members (org, identity) VALUES ($1, $2) ON CONFLICT (org, identity) DO NOTHING`,
		store.Segment(org), string(identity))
	return err
}

// Bindings returns one page of bindings with their identities, groups and roles.
func (s *Store) Bindings(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.BoundRole], error) {
	return store.List(ctx, s.DB, &bindings, r, f, p)
}

// EnsureBinding gives an identity a role in a group, without an end, unless it has it so, and returns the
// binding that was made, or "".
func (t Tx) EnsureBinding(ctx context.Context, group, identity, role resource.UID) (resource.UID, error) {
	now, err := t.Clock(ctx)
	if err != nil {
		return "", err
	}
	var n int
	err = t.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND identity = $2 AND role = $3 AND `+lasts("$4"),
		[]any{store.Segment(group), string(identity), store.Segment(role), store.MS(now)}, &n)
	if err != nil || n > 0 {
		return "", err
	}
	b := resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: role, CreateTime: t.DB.Time()}
	return b.UID, t.Grant(ctx, b)
}

// Grant adds a binding. It returns fault.NotFound if its role does not exist.
func (t Tx) Grant(ctx context.Context, b resource.RoleBinding) error {
	if err := t.RequireRole(ctx, b.Role); err != nil {
		return err
	}
	return t.bind(ctx, b)
}

// PeopleWithEmail returns up to n people who have an e-mail address and have joined one of
// the organizations by an act of their own.
func (s *Store) PeopleWithEmail(
	ctx context.Context, email string, orgs []resource.UID, n int,
) ([]resource.Info, error) {
	if email == "" || len(orgs) == 0 {
		return nil, nil
	}
	args, text := peopleWithEmail(s.Engine, email, orgs, n)
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (i resource.Info, _ error) {
		return i, row.Scan(&i.UID, &i.Name, &i.DisplayName)
	}, text, args...)
}

// peopleWithEmail returns the statement of PeopleWithEmail.
func peopleWithEmail(e store.Engine, email string, orgs []resource.UID, n int) (args []any, text string) {
	segs := make([]int64, len(orgs))
	for i, org := range orgs {
		segs[i] = store.Segment(org)
	}
	q := store.Query{Engine: e}
	text = `SELECT i.uid, i.name, i.display_name FROM identities AS i
		WHERE i.email = ` + q.Arg(email) + ` AND i.email <> '' AND i.parent IS NULL AND EXISTS (SELECT 1 FROM members AS m
			WHERE m.identity = i.uid AND m.org IN (SELECT v FROM ` + e.Unnest(&q, segs) + ` AS s))
		ORDER BY i.uid LIMIT ` + q.Arg(n)
	return q.Args, text
}

// Joined returns the organizations that each of these people has joined by an act of
// their own.
func (s *Store) Joined(ctx context.Context, people []resource.UID) (map[resource.UID][]resource.UID, error) {
	all := map[resource.UID][]resource.UID{}
	if len(people) == 0 {
		return all, nil
	}
	keys := make([]string, len(people))
	for i, uid := range people {
		keys[i] = string(uid)
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT m.identity, g.uid FROM ` + s.Engine.Unnest(&q, keys) + ` AS s CROSS JOIN members AS m
		CROSS JOIN groups AS g WHERE m.identity = s.v AND g.seg = m.org`
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var person, org resource.UID
		err := row.Scan(&person, &org)
		all[person] = append(all[person], org)
		return false, err
	})
	return all, err
}
