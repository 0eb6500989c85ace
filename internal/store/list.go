package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// This file reads pages of resources. A page can have any of the kind's orders, and any union of subtrees. Its cost
// depends on the page and on the number of subtrees, never on the size of the table.
//
// Every subtree has its rows in each order in an index (see schema/), so one subtree is one index range and a page is a
// seek and a short walk. A union of subtrees is a merge of such walks. Totals are counters. The plan is chosen here and
// not by the database: each statement is written so that one index serves it.

// levels contains, for a sort column, the depth down to which subtrees have an index in the order of the column. A
// list of a deeper subtree is sorted, which is slow only if the subtree is large.
var levels = map[string]int{"name": 3, "create_ms": 3, "update_ms": 1}

// A Condition is a filter of a list: the column has a value. There is an index (column, uid) for it.
type Condition struct {
	column string
	value  any
	since  bool // greater values match too
	flag   bool // the column itself must be true; its index has only such rows
}

// List reads one page of a kind.
func List[T any](
	ctx context.Context, s *DB, l *Kind[T], r Reach, f resource.Filter, p page.Request,
) (page.Page[T], error) {
	var out page.Page[T]
	if f.Group != "" {
		if f.UIDs.ChildrenOf != "" && f.UIDs.ChildrenOf != f.Group {
			return out, nil
		}
		f.UIDs.ChildrenOf = f.Group
	}
	sc := l.scope(r, f.UIDs)
	if sc.Empty() {
		return out, nil
	}
	col, ok := l.OrderColumn(p.Order.Field)
	if !ok {
		return out, fmt.Errorf("cannot list %s by %q", l.Table, p.Order.Field)
	}
	q := Query{Engine: s.Engine, Table: l.Table, Columns: l.text().columns, joins: l.Joins, Column: col, name: f.Name,
		Page: p}
	q.filter(f)
	if group := sc.fromFilter(r, f.UIDs); group != "" {
		q.require(group, append(strings.Fields(l.ParentTables), "groups")...)
	}
	if col == "uid" && sc.Children != "" && !q.filtered() &&
		(p.After == nil || resource.UID(p.After.UID).Parent() == sc.Children) {
		q.Column = "seg" // the segments of siblings have the same order as their uids
	}
	spans, err := s.spans(ctx, q, sc)
	if err != nil {
		return out, err
	}
	for _, sp := range spans {
		out.Total += sp.rows
	}
	near, complete := q.prune(spans)
	out.Items, err = read(ctx, s, l, q, near)
	// rows were deleted after they were counted, so dropped spans may be needed
	if err == nil && !complete && len(out.Items) <= p.Size {
		out.Items, err = read(ctx, s, l, q, spans)
	}
	if err != nil {
		return page.Page[T]{}, err
	}
	if len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		last := l.Cursor(out.Items[p.Size-1], col)
		out.Last = &last
	}
	return out, nil
}

// filter adds the conditions of f that compare a column with a value.
func (q *Query) filter(f resource.Filter) {
	if f.Relationship != resource.RelationshipNone {
		q.where = append(q.where, Condition{column: "relationship", value: int64(f.Relationship)})
	}
	if f.KeyID != "" {
		q.where = append(q.where, Condition{column: "key_id", value: f.KeyID})
	}
	if f.Identity != "" {
		q.where = append(q.where, Condition{column: "identity", value: string(f.Identity)})
	}
	if f.Role != "" {
		q.where = append(q.where, Condition{column: "role", value: Segment(f.Role)})
		q.require(f.Role, "roles")
	}
	if f.Digest != "" {
		q.where = append(q.where, Condition{column: "digest", value: f.Digest})
	}
	if !f.UpdatedSince.IsZero() {
		q.where = append(q.where, Condition{column: "update_ms", value: MS(f.UpdatedSince), since: true})
	}
	if f.Deprecated {
		q.where = append(q.where, Condition{column: "deprecated", flag: true})
	}
	q.classes, q.direction = f.Classes, f.Direction
}

// read returns the rows of a page, and one more row if there is a next page.
func read[T any](ctx context.Context, s *DB, l *Kind[T], q Query, spans []span) (items []T, err error) {
	each := func(row Scanner) (bool, error) {
		v, err := l.Scan(row)
		items = append(items, v)
		return len(items) > q.Page.Size, err
	}
	switch {
	case len(spans) == 0:
	case len(spans) == 1:
		text := q.page(spans[0])
		err = s.Rows(ctx, text, q.Args, each)
	case s.Engine.Postgres:
		text := q.lateral(spans)
		err = s.Rows(ctx, text, q.Args, each)
	default:
		err = s.Snapshot(ctx, func(rows Reader) error {
			segs, err := merge(ctx, rows, q, spans)
			if err != nil || len(segs) == 0 {
				return err
			}
			text := q.fetch(segs)
			return rows(ctx, text, q.Args, each)
		})
	}
	return items, err
}

// A span is a part of a scope: the rows of one index range, or a set of rows.
type span struct {
	below, children resource.UID
	self            bool // the span includes the group itself; only for ranges of uids
	set             []resource.UID
	rows            int64 // number of rows
}

// spans returns the parts of a scope that are not empty, in the order of their uids, with their sizes.
func (s *DB) spans(ctx context.Context, q Query, sc Scope) ([]span, error) {
	var parts []span
	self := q.Column == "uid" && !q.filtered() && includes(sc.Rows, sc.Below)
	if self {
		sc.Rows = slices.DeleteFunc(slices.Clone(sc.Rows), func(uid resource.UID) bool {
			return slices.Contains(sc.Below, uid)
		})
	}
	for _, uid := range sc.Below {
		parts = append(parts, span{below: uid, self: self})
	}
	if sc.Children != "" {
		parts = append(parts, span{children: sc.Children})
	}
	if err := s.size(ctx, q, parts); err != nil {
		return nil, err
	}
	if len(sc.Rows) > 0 {
		sp := span{set: sc.Rows}
		q := q
		text := q.total(sp)
		if err := s.Row(ctx, text, q.Args, &sp.rows); err != nil {
			return nil, err
		}
		parts = append(parts, sp)
	}
	return slices.DeleteFunc(parts, func(sp span) bool { return sp.rows == 0 }), nil
}

// includes reports whether set contains all of uids.
func includes(set, uids []resource.UID) bool {
	return !slices.ContainsFunc(uids, func(uid resource.UID) bool { return !slices.Contains(set, uid) })
}

// size sets the number of rows of each span. The number comes from a counter, or,
// if the list has filters, from counting the entries of an index.
func (s *DB) size(ctx context.Context, q Query, spans []span) error {
	if q.filtered() {
		for i := range spans {
			q := q
			text := q.total(spans[i])
			if err := s.Row(ctx, text, q.Args, &spans[i].rows); err != nil {
				return err
			}
		}
		return nil
	}
	if len(spans) == 0 {
		return nil
	}
	text := q.counters(spans)
	return s.Rows(ctx, text, q.Args, func(row Scanner) (bool, error) {
		var i int
		var n int64
		err := row.Scan(&i, &n)
		spans[i].rows = n
		return false, err
	})
}

// prune drops the spans that cannot contribute to a page that is sorted by uid: the spans have the same order, and
// their sizes are known. complete is false if it dropped spans because of their sizes alone.
func (q *Query) prune(spans []span) (out []span, complete bool) {
	if q.Column != "uid" || len(spans) < 2 {
		return spans, true
	}
	complete = true
	left := int64(q.need())
	for i := range spans {
		sp := spans[i]
		if q.Page.Order.Desc {
			sp = spans[len(spans)-1-i]
		}
		if sp.below == "" { // the rows of a set can be anywhere in the order
			out = append(out, sp)
			continue
		}
		if q.passed(sp.below) {
			continue
		}
		if left <= 0 {
			complete = false
			continue
		}
		if c := q.Page.After; c == nil || !sp.below.Covers(resource.UID(c.UID)) {
			left -= sp.rows // if the cursor is inside, the number of rows after it is unknown
		}
		out = append(out, sp)
	}
	return out, complete
}

// passed reports whether the whole subtree of uid comes before the cursor.
func (q *Query) passed(uid resource.UID) bool {
	c := q.Page.After
	if c == nil {
		return false
	}
	if q.Page.Order.Desc {
		return string(uid) >= c.UID
	}
	return string(uid)+"0" <= c.UID
}

// A key is the position of a row in an order.
type key struct {
	text string
	num  int64
	seg  int64
}

// merge returns the segments of the page's rows, in order, from several spans. For each span it reads one index range
// until the rows can no longer be on the page. In SQLite that costs little more than reading the rows.
func merge(ctx context.Context, rows Reader, q Query, spans []span) ([]int64, error) {
	order := q.compare
	if q.Page.Order.Desc {
		order = func(a, b key) int { return q.compare(b, a) }
	}
	need := q.need()
	var best []key
	for _, sp := range spans {
		q := q
		text := q.keys(sp, need)
		var got []key
		err := rows(ctx, text, q.Args, func(row Scanner) (bool, error) {
			var k key
			into := any(&k.num)
			if q.textual() {
				into = &k.text
			}
			if err := row.Scan(&k.seg, into); err != nil {
				return false, err
			}
			if len(best) == need && order(k, best[need-1]) > 0 {
				return true, nil
			}
			got = append(got, k)
			return false, nil
		})
		if err != nil {
			return nil, err
		}
		best = mergeKeys(best, got, need, order)
	}
	var segs []int64
	for _, k := range best[min(q.Page.Skip, len(best)):] {
		segs = append(segs, k.seg)
	}
	return segs, nil
}

// mergeKeys merges two ordered lists and returns the first n keys.
func mergeKeys(a, b []key, n int, order func(a, b key) int) []key {
	out := make([]key, 0, min(n, len(a)+len(b)))
	for len(out) < n && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && order(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// compare orders keys as the database does.
func (q *Query) compare(a, b key) int {
	return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.num, b.num), cmp.Compare(a.seg, b.seg))
}

// textual reports whether the sort column is text.
func (q *Query) textual() bool { return q.Column == "uid" || q.Column == "name" }

// need returns how many of the first rows must be read to determine the page.
func (q *Query) need() int { return q.Page.Skip + q.Page.Size + 1 }

func itoa(n int) string { return strconv.Itoa(n) }

// A Listing contains the table, columns and joins that the lists of a kind read, for tests of query plans.
type Listing struct{ Table, Columns, Joins string }

// Listing returns the Listing of a kind.
func (k *Kind[T]) Listing() Listing { return Listing{k.Table, k.text().columns, k.Joins} }
