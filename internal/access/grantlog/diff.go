package grantlog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A DiffQuery selects the roles that identities gained and lost between two times, on Under and below it, or on Groups.
type DiffQuery struct {
	From, To      time.Time
	Under, Groups []resource.UID
}

// A Change says how a grant has changed.
type Change int

// The kinds of changes. An identity grants or revokes a role; a grant begins or expires by itself.
const (
	Granted Change = iota + 1
	Begun
	Revoked
	Expired
)

// A GrantDiff is a role that an identity has gained or lost.
type GrantDiff struct {
	resource.BoundRole
	Change Change
	At     time.Time
	By     resource.UID // the identity that made the change; "" if unknown or if the grant began or expired by itself
}

// A diffBranch selects the changes of one kind, with the database index of one column.
type diffBranch struct {
	change Change
	column string // column with the time of the change
	where  string // further SQL condition
	by     string // SQL expression for the identity that made the change
	gained bool
}

// diffBranches cover every change exactly once. A grant that expires before it is deleted counts as Expired, and a
// grant that begins after its creation counts as Begun.
var diffBranches = []diffBranch{
	{Granted, "from_ms", `t.start_ms <= t.from_ms`, "t.made_by", true},
	{Begun, "start_ms", `t.start_ms > 0 AND t.start_ms > t.from_ms`, "t.made_by", true},
	{
		Revoked, "to_ms", `t.to_ms < 9223372036854775806 AND (t.expire_ms = 0 OR t.expire_ms > t.to_ms)`, "t.ended_by",
		false,
	},
	{Expired, "expire_ms", `t.expire_ms > 0 AND t.expire_ms <= t.to_ms`, "''", false},
}

// activeAt returns the SQL condition that the grant in a row of the history was active at a time. param is the
// placeholder of the time.
func activeAt(row, param string) string {
	return strings.NewReplacer("t.", row+".", "AT", param).Replace(
		`t.to_ms > AT AND t.from_ms <= AT AND t.start_ms <= AT AND (t.expire_ms = 0 OR t.expire_ms > AT)`)
}

// A diffScope has the parts of a statement that restrict changes to a time span and to groups: two parameters and two
// conditions.
type diffScope struct{ from, to, org, place string }

func (d DiffQuery) scope(q *store.Query, known map[resource.UID]string) diffScope {
	var orgs []resource.UID
	for _, uid := range append(slices.Clone(d.Under), d.Groups...) {
		orgs = append(orgs, uid.Root())
	}
	return diffScope{
		from: q.Arg(store.MS(d.From)), to: q.Arg(store.MS(d.To)),
		org: `t.org IN (SELECT v FROM ` + q.Engine.Unnest(q, segments(slices.Values(orgs))) + ` AS o)`,
		place: `(EXISTS (SELECT 1 FROM ` + q.Engine.Unnest(q, distinct(d.Under)) + ` AS s
				WHERE t.uid > s.v || '/' AND t.uid < s.v || '0')
			OR +t.grp IN (SELECT v FROM ` + q.Engine.Unnest(q, segments(maps.Keys(known))) + ` AS s))`,
	}
}

// text returns the statement that reads the changes of one kind. If an identity holds the role on the group through
// another binding at the other time, it has neither gained nor lost the role.
func (b diffBranch) text(in diffScope) string {
	has, had := in.from, in.to
	if b.gained {
		has, had = in.to, in.from
	}
	return fmt.Sprintf(`SELECT %d AS change, t.%s AS at_ms, %s AS actor, t.seq, t.uid, t.identity, t.role, t.create_ms,
		t.start_ms, t.expire_ms FROM binding_history AS t WHERE %s AND t.%s > %s AND t.%s <= %s AND %s AND %s AND %s
		AND NOT EXISTS (SELECT 1 FROM binding_history AS u
			WHERE u.identity = t.identity AND +u.grp = t.grp AND +u.role = t.role AND %s)`,
		b.change, b.column, b.by, in.org, b.column, in.from, b.column, in.to, b.where, activeAt("t", has), in.place,
		activeAt("u", had))
}

// DiffGrants returns one page of the roles that identities gained and lost, ordered by time. The names in a gained role
// are the names at the later time, and the names in a lost role are the names at the earlier time.
func (s *Store) DiffGrants(ctx context.Context, d DiffQuery, r page.Request) (out page.Page[GrantDiff], _ error) {
	known, err := s.GroupNamesAt(ctx, d.To, d.Groups)
	if err != nil {
		return out, err
	}
	q := store.Query{Engine: s.Engine, Page: r}
	scope := d.scope(&q, known)
	var branches []string
	for _, b := range diffBranches {
		branches = append(branches, b.text(scope))
	}
	changes := `(` + strings.Join(branches, ` UNION ALL `) + `) AS t`
	if err := s.Row(ctx, `SELECT count(*) FROM `+changes, q.Args, &out.Total); err != nil || out.Total == 0 {
		return out, err
	}
	dir, than := ``, `>`
	if r.Order.Desc {
		dir, than = ` DESC`, `<`
	}
	where := ``
	if r.After != nil {
		seq, _ := strconv.ParseInt(r.After.Key, 10, 64) // cannot fail, because this function has formatted the key
		where = ` WHERE (t.at_ms, t.seq) ` + than + ` (` + q.Arg(r.After.Number) + `, ` + q.Arg(seq) + `)`
	}
	text := `SELECT t.change, t.at_ms, t.actor, t.seq, t.uid, t.identity, t.role, t.create_ms, t.start_ms, t.expire_ms
		FROM ` + changes + where + ` ORDER BY t.at_ms` + dir + `, t.seq` + dir +
		q.Limit(r.Size+1) + ` OFFSET ` + q.Arg(r.Skip)
	rows, err := store.ReadAll(ctx, s.Rows, scanDiff, text, q.Args...)
	if err != nil {
		return out, err
	}
	if len(rows) > r.Size {
		rows = rows[:r.Size]
		last := rows[r.Size-1]
		out.Last = &page.Cursor{Number: store.MS(last.At), Key: fmt.Sprintf("%019d", last.seq)} // a fixed size
	}
	out.Items, err = s.describeDiff(ctx, d, rows)
	return out, err
}

// A diffRow is a row of the result of a diff query.
type diffRow struct {
	GrantDiff
	seq, role int64
}

func scanDiff(row store.Scanner) (d diffRow, _ error) {
	var at, created, start, expire int64
	err := row.Scan(&d.Change, &at, &d.By, &d.seq, &d.UID, &d.Identity, &d.role, &created, &start, &expire)
	d.At = store.FromMS(at)
	setTimes(&d.RoleBinding, created, start, expire)
	return d, err
}

// describeDiff adds the groups, roles and identities to changes.
func (s *Store) describeDiff(ctx context.Context, d DiffQuery, rows []diffRow) ([]GrantDiff, error) {
	diffs := make([]GrantDiff, len(rows))
	for _, gained := range []bool{true, false} {
		asOf := d.From
		if gained {
			asOf = d.To
		}
		var bound []resource.BoundRole
		var roles []int64
		var positions []int
		for i, row := range rows {
			if (row.Change <= Begun) == gained {
				bound, roles, positions = append(bound, row.BoundRole), append(roles, row.role), append(positions, i)
			}
		}
		if err := s.describePast(ctx, asOf, bound, roles); err != nil {
			return nil, err
		}
		for i, b := range bound {
			diffs[positions[i]] = rows[positions[i]].GrantDiff
			diffs[positions[i]].BoundRole = b
		}
	}
	return diffs, nil
}

// A RoleDiff is a role whose capabilities have changed.
type RoleDiff struct {
	resource.Info
	Gained, Lost resource.Capabilities
	At           time.Time    // time of the last change
	By           resource.UID // the identity that made the last change; "" if unknown or the service itself
}

// maxRoleDiffs is the greatest number of roles that DiffRoles returns.
const maxRoleDiffs = 200

// DiffRoles returns up to maxRoleDiffs roles that existed at both times and have other capabilities at the later one,
// among the roles of organizations and the managed roles, ordered by the time of the change.
func (s *Store) DiffRoles(ctx context.Context, from, to time.Time, orgs []resource.UID) ([]RoleDiff, error) {
	q := store.Query{Engine: s.Engine}
	since, until := q.Arg(store.MS(from)), q.Arg(store.MS(to))
	text := `SELECT t.uid, t.name, t.capabilities, b.capabilities, t.from_ms, t.made_by FROM role_history AS t
		JOIN role_history AS b ON b.seg = t.seg AND b.to_ms > ` + since + ` AND b.from_ms <= ` + since + `
		WHERE t.from_ms > ` + since + ` AND t.from_ms <= ` + until + ` AND t.to_ms > ` + until + `
			AND t.capabilities <> b.capabilities
		AND (t.uid NOT LIKE '%/%' OR EXISTS (SELECT 1 FROM ` + q.Engine.Unnest(&q, distinct(orgs)) + ` AS s
			WHERE t.uid > s.v || '/' AND t.uid < s.v || '0'))
		ORDER BY t.from_ms, t.seq LIMIT ` + q.Arg(maxRoleDiffs)
	return store.ReadAll(ctx, s.Rows, scanRoleDiff, text, q.Args...)
}

func scanRoleDiff(row store.Scanner) (d RoleDiff, _ error) {
	var before, after []byte
	var at int64
	if err := row.Scan(&d.UID, &d.Name, &after, &before, &at, &d.By); err != nil {
		return d, err
	}
	var was, is resource.Capabilities
	if err := json.Unmarshal(before, &was); err != nil {
		return d, fmt.Errorf("capabilities of %s: %w", d.UID, err)
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return d, fmt.Errorf("capabilities of %s: %w", d.UID, err)
	}
	d.Gained, d.Lost, d.At = is.Without(was), was.Without(is), store.FromMS(at)
	return d, nil
}
