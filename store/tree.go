package store

import (
	"context"
	"math"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// place returns the columns every resource starts with: seg, uid, parent, a1,
// a2, a3.
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

// segment is the last segment of a uid as a number that sorts as its digits do:
// a database has signed numbers only, so the first bit is turned over.
func Segment(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// Refusal turns the refusal of an insert or update into a fault: another of
// the same name, or a parent that is not there.
func (s *DB) Refusal(err error, kind, name string, uid resource.UID) error {
	switch s.Engine.failure(err) {
	case duplicate:
		f := fault.Exists(kind, name)
		f.Cause = err
		return f
	case dangling:
		f := fault.Missing("group", string(uid.Parent()))
		f.Cause = err
		return f
	}
	return err
}

// mustExist holds the group until the commit. It returns fault.NotFound if there
// is none: a foreign key knows a parent by its segment, and a uid with the
// wrong segments above it must not pass.
func (t *Tx) RequireGroup(ctx context.Context, group resource.UID) error {
	if group == "" {
		return nil
	}
	var one int
	err := t.Row(ctx, `SELECT 1 FROM groups AS t WHERE t.uid = $1`+t.DB.Engine.Hold, []any{string(group)}, &one)
	return Missing(err, "group", group)
}

// Duplicate reports whether a unique index has refused a statement.
func (s *DB) Duplicate(err error) bool { return s.Engine.failure(err) == duplicate }

// Dangling reports whether a foreign key has refused a statement.
func (s *DB) Dangling(err error) bool { return s.Engine.failure(err) == dangling }

// GroupNames returns the names of groups. It returns fault.NotFound if one of them
// is not there.
func (s *DB) GroupNames(ctx context.Context, groups []resource.UID) ([]string, error) {
	names := make([]string, len(groups))
	for i, uid := range groups {
		if err := s.Row(ctx, `SELECT name FROM groups WHERE uid = $1`, []any{string(uid)}, &names[i]); err != nil {
			return nil, Missing(err, "group", uid)
		}
	}
	return names, nil
}
