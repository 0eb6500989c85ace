package store

import (
	"context"
	"math"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// place returns the columns every resource starts with: seg, uid, parent, a1,
// a2, a3.
func place(uid resource.UID) []any {
	out := []any{segment(uid), string(uid), nil}
	if p := uid.Parent(); p != "" {
		out[2] = segment(p)
	}
	for d := 1; d <= 3; d++ {
		if d < uid.Depth() {
			out = append(out, segment(uid.Ancestor(d)))
		} else {
			out = append(out, nil)
		}
	}
	return out
}

// segment is the last segment of a uid as a number that sorts as its digits do:
// a database has signed numbers only, so the first bit is turned over.
func segment(uid resource.UID) int64 { return uid.Segment() ^ math.MinInt64 }

// inserted turns the refusal of an insert or update into a fault: another of
// the same name, or a parent that is not there.
func (s *Store) inserted(err error, kind, name string, uid resource.UID) error {
	switch s.engine.failure(err) {
	case notOne:
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
func (t *tx) mustExist(ctx context.Context, group resource.UID) error {
	if group == "" {
		return nil
	}
	var one int
	err := t.row(ctx, `SELECT 1 FROM groups AS t WHERE t.uid = $1`+t.s.engine.hold, []any{string(group)}, &one)
	return missing(err, "group", group)
}
