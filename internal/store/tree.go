package store

import (
	"context"
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/field"
)

// TreeColumns returns the columns that the row of every resource starts with: seg,
// uid, parent, a1, a2, a3.
func TreeColumns(uid resource.UID) []any {
	out := []any{Segment(uid), string(uid), nil}
	if p := uid.Parent(); p != "" {
		out[2] = Segment(p)
	}
	for d := 1; d <= 3; d++ {
		if d < uid.Depth() {
			out = append(out, Segment(uid.Ancestor(d)))
		} else {
			out = append(out, nil)
		}
	}
	return out
}

// Segment returns the last segment of a uid as a number, in the order of the segments.
func Segment(uid resource.UID) int64 { return field.Segment(uid) }

// ConstraintFault turns the error of an insert or update into a fault if a constraint
// refused the statement, because a resource with the same name exists or the parent
// does not exist.
func (s *DB) ConstraintFault(err error, kind, name string, uid resource.UID) error {
	switch s.Engine.Failure(err) {
	case engine.Duplicate:
		f := fault.Exists(kind, name)
		f.Cause = err
		return f
	case engine.Dangling:
		f := fault.Missing("group", string(uid.Parent()))
		f.Cause = err
		return f
	}
	return err
}

// Require locks a row of a table, so that it is not deleted before the commit. It returns
// fault.NotFound with the label if there is no row with the uid. A foreign key is not
// enough, because it refers to a row by the last segment only: a uid that has the wrong
// segments above it would be accepted.
func (t *Tx) Require(ctx context.Context, table, label string, uid resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM `+table+` AS t WHERE t.uid = $1`+t.DB.Engine.ForShare, []any{string(uid)}, &one)
	return Missing(err, label, uid)
}

// RequireGroup is Require for a group. The group "" is above all organizations
// and always exists.
func (t *Tx) RequireGroup(ctx context.Context, group resource.UID) error {
	if group == "" {
		return nil
	}
	return t.Require(ctx, "groups", "group", group)
}

// LockGroup locks a group until the commit, so that transactions that call it for the same
// group run one after the other. It returns fault.NotFound if there is no such group.
func (t *Tx) LockGroup(ctx context.Context, group resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM groups AS t WHERE t.uid = $1`+t.DB.Engine.ForUpdate, []any{string(group)}, &one)
	return Missing(err, "group", group)
}

// GroupRows is a subquery with the columns of groups that other packages may read. In a
// query it is followed by AS and a name. The table itself belongs to iamdb.
const GroupRows = `(SELECT seg, uid, parent, name FROM groups)`

// RequireRole is Require for a role.
func (t *Tx) RequireRole(ctx context.Context, role resource.UID) error {
	return t.Require(ctx, "roles", "role", role)
}

// A Reference is a column that refers to another table. Label is the noun for the rows
// that have the column.
type Reference struct{ Table, Column, Label string }

// ReferencedBy returns the labels of those references that have at least one row that refers to
// uid.
func (t *Tx) ReferencedBy(ctx context.Context, uid resource.UID, references []Reference) (labels []string, _ error) {
	for _, u := range references {
		var n int
		text := `SELECT count(*) FROM (SELECT 1 FROM ` + u.Table + ` WHERE ` + u.Column + ` = $1 LIMIT 1) AS x`
		if err := t.Row(ctx, text, []any{Segment(uid)}, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			labels = append(labels, u.Label)
		}
	}
	return labels, nil
}

// Duplicate reports whether a unique index has refused a statement.
func (s *DB) Duplicate(err error) bool { return s.Engine.Failure(err) == engine.Duplicate }

// Dangling reports whether a foreign key has refused a statement.
func (s *DB) Dangling(err error) bool { return s.Engine.Failure(err) == engine.Dangling }

// GroupNames returns the names of groups. It returns fault.NotFound if one of them does not
// exist.
func (s *DB) GroupNames(ctx context.Context, groups []resource.UID) ([]string, error) {
	names := make([]string, len(groups))
	for i, uid := range groups {
		if err := s.Row(ctx, `SELECT name FROM groups WHERE uid = $1`, []any{string(uid)}, &names[i]); err != nil {
			return nil, Missing(err, "group", uid)
		}
	}
	return names, nil
}

// Has reports whether a table has a row with a uid.
func (s *DB) Has(ctx context.Context, table string, uid resource.UID) (has bool, err error) {
	err = s.Rows(ctx, `SELECT 1 FROM `+table+` WHERE uid = $1`, []any{string(uid)}, func(Scanner) (bool, error) {
		has = true
		return true, nil
	})
	return has, err
}

// NamesOf returns the names of the rows that have these uids. titled says whether the table
// has display names. It runs one query, which uses an index.
func (s *DB) NamesOf(
	ctx context.Context, table string, titled bool, uids []resource.UID,
) (map[resource.UID]resource.Info, error) {
	names := map[resource.UID]resource.Info{}
	if len(uids) == 0 {
		return names, nil
	}
	args, text := namesOf(s.Engine, table, titled, uids)
	err := s.Rows(ctx, text, args, func(row Scanner) (bool, error) {
		var i resource.Info
		err := row.Scan(&i.UID, &i.Name, &i.DisplayName)
		names[i.UID] = i
		return false, err
	})
	return names, err
}

// namesOf returns the statement that NamesOf runs.
func namesOf(e engine.Engine, table string, titled bool, uids []resource.UID) (args []any, text string) {
	keys := make([]string, len(uids))
	for i, uid := range uids {
		keys[i] = string(uid)
	}
	title := `''`
	if titled {
		title = `t.display_name`
	}
	q := Query{Engine: e}
	text = `SELECT t.uid, t.name, ` + title + ` FROM ` + e.Unnest(&q, keys) + ` AS s CROSS JOIN ` + table +
		` AS t WHERE t.uid = s.v`
	return q.Args, text
}

// MaxNames is the largest number of names in a path. Groups nest 16 deep, so no resource
// has more than 17 names. SQLite does not accept a statement for more than 25.
const MaxNames = 20

// GroupNamed returns an SQL expression for the segment of the group at the path names,
// root first. It has subqueries instead of joins, because SQLite plans a join on
// parameters again at every run.
func GroupNamed(names []string) (args []any, text string) {
	for i, name := range names {
		args = append(args, name)
		if i == 0 {
			text = `(SELECT seg FROM groups WHERE parent IS NULL AND name = $1)`
			continue
		}
		text = `(SELECT seg FROM groups WHERE parent = ` + text + ` AND name = $` + strconv.Itoa(i+1) + `)`
	}
	return args, text
}

// FindByPath returns the uids of the rows at a path: the names of the groups above them
// and their own name, root first. It returns at most limit uids, in the order of their
// segments, and none if the path has more than MaxNames names. It runs one query by
// index, whose cost does not depend on the number of rows.
func (s *DB) FindByPath(ctx context.Context, table string, names []string, limit int) ([]resource.UID, error) {
	if len(names) == 0 || len(names) > MaxNames {
		return nil, nil
	}
	args, text := named(table, names, limit)
	return ReadColumn[resource.UID](ctx, s.Rows, text, args...)
}

// named returns the statement that FindByPath runs.
func named(table string, names []string, limit int) (args []any, text string) {
	args, group := GroupNamed(names[:len(names)-1])
	parent := `parent = ` + group
	if group == "" {
		parent = `parent IS NULL`
	}
	args = append(args, names[len(names)-1], limit)
	n := len(args)
	return args, `SELECT uid FROM ` + table + ` WHERE ` + parent + ` AND name = $` + strconv.Itoa(n-1) +
		` ORDER BY seg LIMIT $` + strconv.Itoa(n)
}
