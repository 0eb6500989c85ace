package grantlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Triggers write the history of grants (schema/0036_grant_history.sql). The trigger on the row of the revision gives
// each transaction that changes grants its own millisecond, in the order of the commits. The state at a time is the
// result of all transactions up to that time.

// RequirePast returns nil if the history of grants at a time is known and final, so that every later query for that
// time returns the same answer. It returns fault.InvalidArgument, naming field, if the time is not in the past, and
// fault.FailedPrecondition if the history begins later.
func (s *Store) RequirePast(ctx context.Context, field string, asOf time.Time) error {
	var current, since int64
	err := s.Row(ctx, `SELECT `+s.Engine.Clock+`, since_ms FROM access_history WHERE id = 1`, nil, &current, &since)
	switch {
	case err != nil:
		return err
	case store.MS(asOf) >= current:
		return fault.Field(field, "must be in the past")
	case store.MS(asOf) < since:
		return fault.Unmet("HISTORY_NOT_KEPT", "the history of grants begins at %s",
			store.FromMS(since).Format(time.RFC3339Nano))
	}
	return s.awaitRevision(ctx)
}

// maxRevisionWait is how long awaitRevision waits. No transaction holds the row of the revision for nearly as long.
const maxRevisionWait = 10 * time.Second

// awaitRevision waits for the transaction that holds the row of the revision, if there is one, because it may commit a
// change with a time in the past. Every later transaction gets a later time than the current one. awaitRevision takes
// no lock itself, because frequent questions about the past would then block changes of grants.
func (s *Store) awaitRevision(ctx context.Context) error {
	if !s.Engine.Postgres {
		return s.Write(ctx, func(*store.Tx) error { return nil }) // an empty transaction runs after the commit in progress
	}
	ctx, cancel := context.WithTimeout(ctx, maxRevisionWait)
	defer cancel()
	for {
		locked, err := s.RevisionLocked(ctx)
		if err != nil || !locked {
			return err
		}
		select {
		case <-ctx.Done():
			return fault.Outage("the database", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// bindings is the kind of a past binding, with the columns that lists can be ordered by.
var bindings = store.Kind[resource.BoundRole]{
	Table: "binding_history", Label: "role binding",
	Columns: func(b *resource.BoundRole) []store.Column {
		return []store.Column{store.Key(&b.UID), store.Time("create_ms", &b.CreateTime).Order("create_time")}
	},
}

// A Query selects the bindings that were active at a time. Either Groups or Under is set.
type Query struct {
	At       time.Time
	Groups   []resource.UID // bindings on these groups
	Under    []resource.UID // bindings on these groups and below them; requires Identity
	Identity resource.UID   // "" selects all identities
	Roles    []resource.UID // nil selects all roles
}

// validAt returns the SQL condition that a row of a history was valid at a time. param is the placeholder of the time.
func validAt(param string) string { return `t.to_ms > ` + param + ` AND t.from_ms <= ` + param }

// source returns the part of a statement after FROM that selects the bindings of the query, with its conditions. known
// has those Groups that exist or existed with exactly that UID; other groups have no bindings. If the query has no
// identity, the database looks up the rows of one group after the other.
func (p Query) source(q *store.Query, known map[resource.UID]string) (text string) {
	active := activeAt("t", q.Arg(store.MS(p.At)))
	groups := func() string { return q.Engine.Unnest(q, segments(maps.Keys(known))) }
	switch {
	case p.Identity == "":
		text = groups() + ` AS s` + q.Engine.Lookup("binding_history", `t.grp = s.v AND `+active) + ` WHERE 1 = 1`
	case p.Under == nil:
		text = `binding_history AS t WHERE t.identity = ` + q.Arg(string(p.Identity)) + ` AND ` + active +
			` AND +t.grp IN (SELECT v FROM ` + groups() + ` AS s)`
	default:
		text = `binding_history AS t WHERE t.identity = ` + q.Arg(string(p.Identity)) + ` AND ` + active +
			` AND EXISTS (SELECT 1 FROM ` + q.Engine.Unnest(q, distinct(p.Under)) + ` AS s
				WHERE t.uid > s.v || '/' AND t.uid < s.v || '0')`
	}
	if p.Roles != nil {
		text += ` AND +t.role IN (SELECT v FROM ` + q.Engine.Unnest(q, segments(slices.Values(p.Roles))) + ` AS r)`
	}
	return text
}

// segments returns the segments of UIDs, sorted and without duplicates.
func segments(uids func(func(resource.UID) bool)) []int64 {
	segs := []int64{}
	for uid := range uids {
		segs = append(segs, store.Segment(uid))
	}
	slices.Sort(segs)
	return slices.Compact(segs)
}

// GroupNamesAt returns the names that groups had at a time, or their last known names if they did not exist then. It
// leaves out groups that have never existed.
func (s *Store) GroupNamesAt(
	ctx context.Context, asOf time.Time, groups []resource.UID,
) (map[resource.UID]string, error) {
	return s.namesAt(ctx, "group_history", asOf, groups)
}

// namesAt returns the names of UIDs in a history at a time, or their last known names.
func (s *Store) namesAt(
	ctx context.Context, table string, asOf time.Time, uids []resource.UID,
) (map[resource.UID]string, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT t.uid, t.name FROM ` + q.Engine.Unnest(&q, segments(slices.Values(uids))) + ` AS s` +
		q.Engine.Lookup(table, `t.seg = s.v`)
	// The last row of a UID wins, which is the row that was valid at the time, if there is one.
	ms := q.Arg(store.MS(asOf))
	text += fmt.Sprintf(` ORDER BY CASE WHEN %s THEN 1 ELSE 0 END, t.seq`, validAt(ms))
	names, err := store.ReadMap[resource.UID, string](ctx, s.Rows, text, q.Args...)
	maps.DeleteFunc(names, func(uid resource.UID, _ string) bool { return !slices.Contains(uids, uid) })
	return names, err
}

// A PastRole is the state of a role at a time in the past.
type PastRole struct {
	UID          resource.UID
	Name         string
	Capabilities resource.Capabilities
}

// rolesAt returns the states of roles at a time, keyed by their segments.
func (s *Store) rolesAt(ctx context.Context, asOf time.Time, segs []int64) (map[int64]PastRole, error) {
	roles := map[int64]PastRole{}
	if len(segs) == 0 {
		return roles, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT t.seg, t.uid, t.name, t.capabilities FROM ` + q.Engine.Unnest(&q, segs) + ` AS s` +
		q.Engine.Lookup("role_history", `t.seg = s.v`)
	text += ` WHERE ` + validAt(q.Arg(store.MS(asOf)))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var seg int64
		var r PastRole
		var caps []byte
		if err := row.Scan(&seg, &r.UID, &r.Name, &caps); err != nil {
			return false, err
		}
		if err := json.Unmarshal(caps, &r.Capabilities); err != nil {
			return false, fmt.Errorf("capabilities of %s: %w", r.UID, err)
		}
		roles[seg] = r
		return false, nil
	})
	return roles, err
}

// GrantsAt returns the grants that an identity had on groups at a time, including grants that had not begun or had
// expired, and the capabilities that their roles had then.
func (s *Store) GrantsAt(
	ctx context.Context, asOf time.Time, identity resource.UID, groups []resource.UID,
) ([]iamdb.Grant, map[resource.UID]resource.Capabilities, error) {
	known, err := s.GroupNamesAt(ctx, asOf, groups)
	if err != nil || len(known) == 0 {
		return nil, nil, err
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT t.uid, t.role, t.start_ms, t.expire_ms FROM binding_history AS t WHERE t.identity = ` +
		q.Arg(string(identity)) + ` AND ` + validAt(q.Arg(store.MS(asOf))) + ` AND +t.grp IN (SELECT v FROM ` +
		q.Engine.Unnest(&q, segments(maps.Keys(known))) + ` AS s)`
	var grants []iamdb.Grant
	var roles []int64
	err = s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var role int64
		g := iamdb.Grant{Identity: identity}
		err := row.Scan(&uid, &role, &g.StartMS, &g.ExpireMS)
		g.Group = uid.Parent()
		grants, roles = append(grants, g), append(roles, role)
		return false, err
	})
	if err != nil {
		return nil, nil, err
	}
	found, err := s.rolesAt(ctx, asOf, slices.Compact(slices.Sorted(slices.Values(roles))))
	allowed := map[resource.UID]resource.Capabilities{}
	for i := range grants {
		r := found[roles[i]]
		grants[i].Role, allowed[r.UID] = r.UID, r.Capabilities
	}
	return grants, allowed, err
}

// RolesHeldAt returns the roles of the bindings that a query selects, in the state of the time in the query and ordered
// by UID, and the number of bindings of each role.
func (s *Store) RolesHeldAt(ctx context.Context, p Query) ([]PastRole, map[resource.UID]int64, error) {
	known, err := s.GroupNamesAt(ctx, p.At, p.Groups)
	if err != nil || p.Under == nil && len(known) == 0 {
		return nil, nil, err
	}
	q := store.Query{Engine: s.Engine}
	counts, err := store.ReadMap[int64, int64](ctx, s.Rows, `SELECT t.role, count(*) FROM `+
		p.source(&q, known)+` GROUP BY t.role`, q.Args...)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.rolesAt(ctx, p.At, slices.Sorted(maps.Keys(counts)))
	byUID := map[resource.UID]int64{}
	for seg, r := range found {
		byUID[r.UID] = counts[seg]
	}
	sorted := slices.SortedFunc(maps.Values(found), func(a, b PastRole) int { return cmp.Compare(a.UID, b.UID) })
	return sorted, byUID, err
}

// PastBindings returns one page of the bindings that a query selects, ordered by uid or by creation time, with the
// names that groups, roles and workloads had at its time. The other fields of an identity are the current ones, and
// empty if the identity was deleted. The page has no total.
func (s *Store) PastBindings(
	ctx context.Context, p Query, r page.Request,
) (out page.Page[resource.BoundRole], _ error) {
	known, err := s.GroupNamesAt(ctx, p.At, p.Groups)
	if err != nil || p.Under == nil && len(known) == 0 {
		return out, err
	}
	col, ok := bindings.OrderColumn(r.Order.Field)
	if !ok {
		return out, fmt.Errorf("cannot list bindings by %q", r.Order.Field)
	}
	q := store.Query{Engine: s.Engine, Table: "binding_history", Column: col, Page: r}
	text := `SELECT t.uid, t.identity, t.role, t.create_ms, t.start_ms, t.expire_ms FROM ` + p.source(&q, known)
	text += q.After() + ` ORDER BY ` + q.Order() + q.Limit(r.Size+1) + ` OFFSET ` + q.Arg(r.Skip)
	var roles []int64
	err = s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		b, role, err := scanPast(row)
		out.Items, roles = append(out.Items, b), append(roles, role)
		return len(out.Items) > r.Size, err
	})
	if err != nil {
		return out, err
	}
	if len(out.Items) > r.Size {
		out.Items = out.Items[:r.Size]
		last := bindings.Cursor(out.Items[r.Size-1], col)
		out.Last = &last
	}
	return out, s.describePast(ctx, p.At, out.Items, roles)
}

// scanPast reads a row of the binding history. role is the last segment of the role's UID: see store.Segment.
func scanPast(row store.Scanner) (b resource.BoundRole, role int64, _ error) {
	var created, start, expire int64
	err := row.Scan(&b.UID, &b.Identity, &role, &created, &start, &expire)
	setTimes(&b.RoleBinding, created, start, expire)
	return b, role, err
}

// setTimes sets the times of a binding to the values of its columns, in milliseconds. 0 is no start or no expiry.
func setTimes(b *resource.RoleBinding, created, start, expire int64) {
	b.CreateTime = store.FromMS(created)
	if start != 0 {
		b.StartTime = store.FromMS(start)
	}
	if expire != 0 {
		b.ExpireTime = store.FromMS(expire)
	}
}

// describePast adds the group, role and identity to each binding. roles are the segments of the bindings' roles.
func (s *Store) describePast(ctx context.Context, asOf time.Time, bindings []resource.BoundRole, roles []int64) error {
	if len(bindings) == 0 {
		return nil
	}
	var groups, identities, workloads []resource.UID
	for _, b := range bindings {
		groups, identities = append(groups, b.Group()), append(identities, b.Identity)
		if !b.Identity.IsRoot() {
			workloads = append(workloads, b.Identity)
		}
	}
	groupNames, err := s.GroupNamesAt(ctx, asOf, groups)
	if err != nil {
		return err
	}
	names, err := s.namesAt(ctx, "identity_history", asOf, workloads)
	if err != nil {
		return err
	}
	found, err := s.rolesAt(ctx, asOf, slices.Compact(slices.Sorted(slices.Values(roles))))
	if err != nil {
		return err
	}
	infos, err := s.identityInfos(ctx, identities)
	if err != nil {
		return err
	}
	joined, err := s.iam.Joined(ctx, identities)
	if err != nil {
		return err
	}
	for i := range bindings {
		b := &bindings[i]
		r := found[roles[i]]
		b.Role, b.RoleInfo = r.UID, resource.Info{UID: r.UID, Name: r.Name}
		b.GroupInfo = resource.Info{UID: b.Group(), Name: groupNames[b.Group()]}
		b.IdentityInfo = infos[b.Identity]
		b.IdentityInfo.UID, b.IdentityInfo.Member = b.Identity, slices.Contains(joined[b.Identity], b.UID.Root())
		if name := names[b.Identity]; name != "" {
			b.IdentityInfo.Name = name
		}
	}
	return nil
}

// identityInfos returns the current descriptions of identities. It leaves out identities that do not exist.
func (s *Store) identityInfos(
	ctx context.Context, uids []resource.UID,
) (map[resource.UID]resource.IdentityInfo, error) {
	q := store.Query{Engine: s.Engine}
	text := `SELECT t.uid, t.name, t.display_name, t.description, t.issuer, t.subject, t.email FROM ` +
		q.Engine.Unnest(&q, distinct(uids)) + ` AS s` + q.Engine.Lookup("identities", `t.uid = s.v`)
	infos := map[resource.UID]resource.IdentityInfo{}
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var i resource.IdentityInfo
		err := row.Scan(&i.UID, &i.Name, &i.DisplayName, &i.Description, &i.Issuer, &i.Subject, &i.Email)
		infos[i.UID] = i
		return false, err
	})
	return infos, err
}

// A PastGroup is the state of a group at a time in the past.
type PastGroup struct {
	UID     resource.UID
	Name    string
	Deleted bool // whether the group no longer exists
}

// PastGroups returns one page of the direct children of parent at a time, ordered by UID.
func (s *Store) PastGroups(
	ctx context.Context, asOf time.Time, parent resource.UID, r page.Request,
) (out page.Page[PastGroup], _ error) {
	known, err := s.GroupNamesAt(ctx, asOf, []resource.UID{parent})
	if err != nil || len(known) == 0 {
		return out, err
	}
	q := store.Query{Engine: s.Engine, Table: "group_history", Column: "uid", Page: r}
	where := `t.parent = ` + q.Arg(store.Segment(parent)) + ` AND ` + validAt(q.Arg(store.MS(asOf)))
	if err := s.Row(ctx, `SELECT count(*) FROM group_history AS t WHERE `+where, q.Args, &out.Total); err != nil {
		return out, err
	}
	text := `SELECT t.uid, t.name, NOT EXISTS (SELECT 1 FROM ` + store.GroupRows + ` AS g WHERE g.uid = t.uid)
		FROM group_history AS t WHERE ` + where +
		q.After() + ` ORDER BY ` + q.Order() + q.Limit(r.Size+1) + ` OFFSET ` + q.Arg(r.Skip)
	err = s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var g PastGroup
		err := row.Scan(&g.UID, &g.Name, &g.Deleted)
		out.Items = append(out.Items, g)
		return len(out.Items) > r.Size, err
	})
	if len(out.Items) > r.Size {
		out.Items = out.Items[:r.Size]
		out.Last = &page.Cursor{UID: string(out.Items[r.Size-1].UID)}
	}
	return out, err
}

// pruneSlack is how long rows stay stored after the history no longer reaches back to them, because RequirePast may
// have accepted a request that is still running. It is longer than a request takes.
const pruneSlack = 5 * time.Minute

// PruneHistory makes the history of grants begin at the time given as before, unless it already begins later. It
// deletes up to n rows whose validity ended more than pruneSlack before that time, and returns the number of deleted
// rows.
func (s *Store) PruneHistory(ctx context.Context, before time.Time, n int) (deleted int, _ error) {
	err := s.Write(ctx, func(t *store.Tx) error {
		deleted = 0
		if _, err := t.Exec(ctx, `UPDATE access_history SET since_ms = $1 WHERE id = 1 AND since_ms < $1`,
			store.MS(before)); err != nil {
			return err
		}
		ended := store.MS(before.Add(-pruneSlack))
		for _, table := range []string{"binding_history", "role_history", "group_history", "identity_history"} {
			if deleted == n {
				break
			}
			got, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE seq IN (SELECT t.seq FROM `+table+` AS t
				WHERE t.to_ms < $1 AND t.to_ms < 9223372036854775806 ORDER BY t.to_ms LIMIT $2)`, ended, n-deleted)
			if err != nil {
				return err
			}
			deleted += int(got)
		}
		return nil
	})
	return deleted, err
}
