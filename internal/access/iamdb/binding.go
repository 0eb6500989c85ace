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
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// bindings is the kind of a binding with its identity, group and role.
var bindings = store.Kind[resource.BoundRole]{
	Table: "role_bindings", Label: "role binding",
	// The group and the role always exist. The joins are outer joins nevertheless, because SQLite would otherwise scan
	// one of the joined tables first and lose the order of the bindings.
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
			store.Flag("", &i.Member).From(
				"EXISTS (SELECT 1 FROM members AS m WHERE m.org = t.a1 AND m.identity = t.identity)"),
			store.Text("", &g.UID).From("g.uid"),
			store.Text("", &g.Name).From("g.name"),
			store.Text("", &g.DisplayName).From("g.display_name"),
			store.Text("", &g.Description).From("g.description"),
			store.Text("", &r.UID).From("r.uid"),
			store.Text("", &r.Name).From("r.name"),
			store.Text("", &r.Description).From("r.description"))
	},
}

// bareBindings is the kind of a binding without its identity, group and role.
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

// activeAt returns the SQL condition that a binding is active at a time. param is the placeholder of the time in
// milliseconds.
func activeAt(param string) string {
	return `start_ms <= ` + param + ` AND end_ms = 0 AND (expire_ms = 0 OR expire_ms > ` + param + `)`
}

// permanentAt returns the SQL condition that a binding is active at a time, whose placeholder is param, and never
// expires.
func permanentAt(param string) string {
	return `start_ms <= ` + param + ` AND end_ms = 0 AND expire_ms = 0`
}

// now returns the latest time that the clock of the database can have, in milliseconds.
func (s *Store) now() int64 {
	_, latest := s.Clock()
	return store.MS(latest)
}

// InsertBinding is InsertBindings for one binding. Its event is resource.BindingCreated.
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

// InsertBindings adds either all or none of the bindings, which must belong to one group, and returns them with their
// identities, group and roles. It returns fault.NotFound if the group, a role or an identity does not exist, and
// fault.AlreadyExists if there already is a binding with the same identity, role, start and end. Two kinds of
// identities need not exist: people, who may not have signed in yet, and identities in unseen, because the caller must
// not learn whether they exist.
func (s *Store) InsertBindings(
	ctx context.Context, added []resource.RoleBinding, unseen ...resource.UID,
) ([]resource.BoundRole, error) {
	if len(added) == 0 {
		return nil, nil
	}
	return s.insertBindings(ctx, added, unseen, func(t Tx) error {
		return t.Emit(ctx, resource.BindingsCreated, added[0].Group(), added[0].Group(), nil, added)
	})
}

func (s *Store) insertBindings(
	ctx context.Context, added []resource.RoleBinding, unseen []resource.UID, emit func(Tx) error,
) (out []resource.BoundRole, _ error) {
	err := s.write(ctx, func(t Tx) error {
		out = nil
		if err := t.RequireGroup(ctx, added[0].Group()); err != nil {
			return err
		}
		for _, b := range added {
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
		return t.Count(ctx, "role_bindings", added[0].UID, len(added))
	})
	return out, err
}

// bind adds a binding with its event and counts it.
func (t Tx) bind(ctx context.Context, b resource.RoleBinding) error {
	if err := t.insertBinding(ctx, b); err != nil {
		return err
	}
	return t.Added(ctx, "role_bindings", resource.BindingCreated, b.UID, b.Group(), b)
}

// bindable checks that the role and the identity of a binding exist, and locks them against deletion until the commit.
// The identity need not exist if it is a person or in unseen.
func (t Tx) bindable(ctx context.Context, b resource.RoleBinding, unseen []resource.UID) error {
	if err := t.RequireRole(ctx, b.Role); err != nil {
		return err
	}
	if b.Identity.IsRoot() { // the identity is a person, who may not have signed in yet
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

// bindingError turns the error of a statement that writes a binding into a fault.
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

// UpdateBinding applies change to the binding and returns the result. Its errors
// are the errors of change and of InsertBindings. It returns
// fault.FailedPrecondition if the binding has ended, or if the organization would
// lose its last permanent owner.
func (s *Store) UpdateBinding(
	ctx context.Context, uid resource.UID, change func(*resource.RoleBinding) error,
) (out resource.BoundRole, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &bareBindings, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		currentTime, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		if before.State(currentTime) == resource.BindingOver {
			return fault.Unmet("BINDING_OVER", "the binding has ended: create a new one")
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

// updateBinding writes the mutable fields of a binding.
func (t Tx) updateBinding(ctx context.Context, b resource.RoleBinding) error {
	ms := func(when time.Time) int64 {
		if when.IsZero() {
			return 0
		}
		return store.MS(when)
	}
	_, err := t.Exec(ctx,
		`UPDATE role_bindings SET identity = $2, role = $3, start_ms = $4, expire_ms = $5, reason = $6 WHERE uid = $1`,
		string(b.UID), string(b.Identity), store.Segment(b.Role), ms(b.StartTime), ms(b.ExpireTime), b.Reason)
	if err != nil {
		return t.bindingError(err, b)
	}
	return nil
}

// EndBindings records the end of up to n expired bindings, each with its event, and returns their number. Every replica
// may call it: each end is recorded once. It skips bindings that another transaction is changing; the next call finds
// them. A binding is no longer active from its expiry on, whether or not its end is recorded.
func (s *Store) EndBindings(ctx context.Context, n int) (ended int, _ error) {
	due, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM role_bindings
		WHERE expire_ms > 0 AND end_ms = 0 AND expire_ms <= $1 LIMIT 1`, s.now())
	if err != nil || len(due) == 0 { // the usual case needs no transaction
		return 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		currentTime, lock, err := t.skipLocked(ctx)
		if err != nil {
			return err
		}
		due, err := bareBindings.All(ctx, t.Rows, ` WHERE t.expire_ms > 0 AND t.end_ms = 0 AND t.expire_ms <= $1
			ORDER BY t.expire_ms LIMIT $2`+lock, store.MS(currentTime), n)
		if err != nil {
			return err
		}
		ended = len(due)
		for _, b := range due {
			if err := t.endBinding(ctx, b, currentTime); err != nil {
				return err
			}
		}
		return nil
	})
	return ended, err
}

// skipLocked returns the time of the database, and the clause with which a query locks the rows that it reads. On
// PostgreSQL the query skips rows that another transaction has locked.
func (t Tx) skipLocked(ctx context.Context) (currentTime time.Time, lock string, err error) {
	if currentTime, err = t.Clock(ctx); err != nil {
		return currentTime, "", err
	}
	lock = t.DB.Engine.ForUpdate
	if t.DB.Engine.Postgres {
		lock += ` SKIP LOCKED`
	}
	return currentTime, lock, nil
}

// endBinding records the end of a binding, with an event in its group.
func (t Tx) endBinding(ctx context.Context, b resource.RoleBinding, currentTime time.Time) error {
	before := b
	b.EndTime = currentTime
	_, err := t.Exec(ctx, `UPDATE role_bindings SET end_ms = $2 WHERE uid = $1`, string(b.UID), store.MS(currentTime))
	if err != nil {
		return err
	}
	t.IdentitiesChanged(b.Identity)
	return t.Emit(ctx, resource.BindingExpired, b.UID, b.Group(), before, b)
}

// deleteExpired removes the expired bindings among the bindings that a condition selects by a segment. Expired bindings
// do not prevent the deletion of a group or a role.
func (t Tx) deleteExpired(ctx context.Context, where string, seg int64) error {
	currentTime, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	return t.deleteBindings(ctx, where+` AND t.expire_ms > 0 AND t.expire_ms <= $2`, seg, store.MS(currentTime))
}

// DeleteBinding removes a binding. It returns nil if there is no such binding, and
// fault.FailedPrecondition if the organization would lose its last permanent owner.
func (s *Store) DeleteBinding(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error { return t.DeleteBinding(ctx, uid) })
}

// DeleteBinding is Store.DeleteBinding inside a transaction. After fault.FailedPrecondition the transaction is still
// usable.
func (t Tx) DeleteBinding(ctx context.Context, uid resource.UID) error {
	if err := t.requireOwners(ctx, `uid = $1`, uid); err != nil {
		return err
	}
	return t.deleteBindings(ctx, `t.uid = $1`, string(uid))
}

// Owns reports whether an identity is currently an owner of an organization.
func (s *Store) Owns(ctx context.Context, org, identity resource.UID) (bool, error) {
	var n int
	err := s.Row(ctx,
		`SELECT count(*) FROM role_bindings WHERE parent = $1 AND role = $2 AND identity = $3 AND `+activeAt("$4"),
		[]any{store.Segment(org), store.Segment(resource.OwnerRole), string(identity), s.now()}, &n)
	return n > 0, err
}

// OwnersOf returns the identities that currently own an organization.
func (s *Store) OwnersOf(ctx context.Context, org resource.UID) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT DISTINCT identity FROM role_bindings
		WHERE parent = $1 AND role = $2 AND `+activeAt("$3")+` ORDER BY identity`,
		store.Segment(org), store.Segment(resource.OwnerRole), s.now())
}

// PermanentOwners returns the number of identities that own an organization permanently and are not suspended.
func (s *Store) PermanentOwners(ctx context.Context, org resource.UID) (n int, err error) {
	err = s.Row(ctx, `SELECT count(DISTINCT identity) FROM role_bindings WHERE parent = $1 AND role = $2 AND `+
		permanentAt("$3")+` AND `+activeOwner,
		[]any{store.Segment(org), store.Segment(resource.OwnerRole), s.now()}, &n)
	return n, err
}

// deleteBindings removes the bindings that a condition selects, with their events.
func (t Tx) deleteBindings(ctx context.Context, where string, args ...any) error {
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

// requireOwners returns fault.FailedPrecondition if an organization would have no permanent owner after the removal of
// the bindings that the condition where selects by uid.
func (t Tx) requireOwners(ctx context.Context, where string, uid resource.UID) error {
	ownerless, err := t.ownerlessWithout(ctx, where, uid)
	if err == nil && len(ownerless) > 0 {
		err = lastOwner(ownerless[0], uid.Ancestor(1))
	}
	return err
}

// lastOwner returns the error for a change that would leave org without a permanent owner. The error names org only if
// it is home, the organization in which the caller acts, because a caller who may delete an identity need not see what
// the identity owns.
func lastOwner(org, home resource.UID) error {
	if org == home {
		return fault.Unmet("LAST_OWNER", "the organization %s must keep an owner whose binding does not expire", org)
	}
	return fault.Unmet("LAST_OWNER", "another organization must keep an owner whose binding does not expire")
}

// ownerlessWithout returns the organizations that would have no permanent owner after the removal of the bindings that
// the condition where selects by uid. An owner binding that has not begun, or that expires, does not count, and neither
// does a suspended owner. It locks the organizations with such bindings, so that two owners cannot leave one
// organization at the same time.
func (t Tx) ownerlessWithout(ctx context.Context, where string, uid resource.UID) (ownerless []resource.UID, _ error) {
	arg := string(uid)
	owner := store.Segment(resource.OwnerRole)
	currentTime, err := t.Clock(ctx)
	if err != nil {
		return nil, err
	}
	orgs, err := store.ReadColumn[resource.UID](ctx, t.Rows,
		`SELECT t.uid FROM groups AS t WHERE t.parent IS NULL AND t.seg IN
		(SELECT parent FROM role_bindings WHERE `+where+` AND role = $2 AND `+permanentAt("$3")+`)
		ORDER BY t.uid`+t.DB.Engine.ForUpdate,
		arg, owner, store.MS(currentTime))
	if err != nil {
		return nil, err
	}
	for _, org := range orgs {
		var left int
		err := t.Row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $3 AND role = $2 AND NOT (`+where+`)
			AND `+permanentAt("$4")+` AND `+activeOwner, []any{arg, owner, store.Segment(org), store.MS(currentTime)}, &left)
		if err != nil {
			return nil, err
		}
		if left == 0 {
			ownerless = append(ownerless, org)
		}
	}
	return ownerless, nil
}

// AddMember records that a person has joined an organization themselves. A role that somebody else has given does not
// make a person a member.
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

// EnsureBinding gives an identity a role in a group permanently, unless it already has the role permanently. It returns
// the UID of the binding that it has created, or "" if it has created none.
func (t Tx) EnsureBinding(ctx context.Context, group, identity, role resource.UID) (resource.UID, error) {
	currentTime, err := t.Clock(ctx)
	if err != nil {
		return "", err
	}
	var n int
	err = t.Row(ctx,
		`SELECT count(*) FROM role_bindings WHERE parent = $1 AND identity = $2 AND role = $3 AND `+permanentAt("$4"),
		[]any{store.Segment(group), string(identity), store.Segment(role), store.MS(currentTime)}, &n)
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

// PeopleWithEmail returns up to n people with an e-mail address who have joined one of the organizations themselves:
// see AddMember.
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
func peopleWithEmail(e engine.Engine, email string, orgs []resource.UID, n int) (args []any, text string) {
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

// Members returns up to n people who have joined one of the organizations themselves, with their names and addresses
// only: see AddMember.
func (s *Store) Members(ctx context.Context, orgs []resource.UID, n int) ([]resource.Identity, error) {
	segs := make([]int64, len(orgs))
	for i, org := range orgs {
		segs[i] = store.Segment(org)
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT DISTINCT i.uid, i.name, i.display_name, i.email, i.last_seen_ms
		FROM members AS m JOIN identities AS i ON i.uid = m.identity
		WHERE i.parent IS NULL AND m.org IN (SELECT v FROM ` + s.Engine.Unnest(&q, segs) + ` AS s) LIMIT ` + q.Arg(n)
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (i resource.Identity, _ error) {
		var seen int64
		err := row.Scan(&i.UID, &i.Name, &i.DisplayName, &i.Email, &seen)
		if seen != 0 {
			i.LastSeenTime = store.FromMS(seen)
		}
		return i, err
	}, text, q.Args...)
}

// Joined returns the organizations that each of these people has joined themselves: see AddMember.
func (s *Store) Joined(ctx context.Context, people []resource.UID) (map[resource.UID][]resource.UID, error) {
	joined := map[resource.UID][]resource.UID{}
	if len(people) == 0 {
		return joined, nil
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
		joined[person] = append(joined[person], org)
		return false, err
	})
	return joined, err
}

// Holders returns up to n identities that hold a role in a group at this moment, ordered by the age of their bindings,
// oldest first.
func (t Tx) Holders(ctx context.Context, group, role resource.UID, n int) ([]resource.UID, error) {
	now, err := t.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT identity FROM role_bindings WHERE parent = $1 AND role = $2
		AND start_ms <= $4 AND end_ms = 0 AND (expire_ms = 0 OR expire_ms > $4)
		ORDER BY create_ms, seg LIMIT $3`, store.Segment(group), store.Segment(role), n, store.MS(now))
}

// BindingRows is the subquery with which other packages read bindings in their statements, to be followed by AS and a
// name.
const BindingRows = `(SELECT seg, uid, parent, identity, role, start_ms, expire_ms FROM role_bindings)`
