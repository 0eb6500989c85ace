package advisorydb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// This file lists advisories. As for other kinds of resources, the cost of a page depends on the size of the page. For
// every group, every partition and every name, an index contains the advisories in each order, and a counter contains
// their number. So a list with one filter is a merge of index ranges. A list that combines filters of different kinds
// reads all matches of each filter, and intersects them (intersect.go).
//
// The cost also depends on the number of groups in reach that have advisories, because an index range contains the
// advisories of only one group. There are few such groups, because advisories are imported for an organization, or
// written for a team's artifacts.

// advisoryOrders are the fields by which a list of advisories can be ordered.
var advisoryOrders = map[string]order{"uid": byUID, "create_time": byCreation, "update_time": byUpdate}

// An order is an order of a list of advisories. A segment is the last part of an advisory's UID, as a number. Segments
// rise with time, so the order of creation is the order of segments.
type order int

const (
	byUID order = iota
	byCreation
	byUpdate
)

// A partition contains the advisories of a group that have the same signature. It is a row of the table
// advisory_partitions. The column partition_id of an advisory contains the partition's id.
type partition struct {
	id    int64
	group resource.UID
	signature
}

// An indexRange is a range of an index. It contains advisories of one group.
type indexRange struct {
	key   int64 // value of the index's first column in this range
	group resource.UID
	n     int64 // number of advisories in the range
}

// indexRanges are ranges in the indexes of one table. The first column of these indexes is column.
type indexRanges struct {
	table, column string
	ranges        []indexRange
}

// An entry is the position of an advisory in an order.
type entry struct {
	seg, updated int64
	group        resource.UID
}

func (e entry) uid() string { return fmt.Sprintf("%s/%016x", e.group, uint64(e.seg)^1<<63) }

// Advisories returns one page of advisories. It omits their affected packages unless whole is set.
func (s *Store) Advisories(
	ctx context.Context, r store.Reach, f vuln.AdvisoryFilter, p page.Request, whole bool,
) (out page.Page[vuln.Advisory], _ error) {
	by, ok := advisoryOrders[p.Order.Field]
	if !ok {
		return out, fmt.Errorf("cannot list advisories by %q", p.Order.Field)
	}
	sc := store.Visible(false, r, f.UIDs)
	if sc.Empty() {
		return out, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil || len(parts) == 0 {
		return out, err
	}
	l := advisoryList{s: s, by: by, p: p, partitions: parts, f: f, groups: groupsOf(parts)}
	if len(l.keyedFilters()) > 0 {
		if l.generations, err = s.generations(ctx, sc); err != nil {
			return out, err
		}
	}
	var entries []entry
	if in, ok := l.ranges(sc); ok {
		entries, out.Total, err = l.walk(ctx, in)
	} else {
		entries, out.Total, err = l.intersect(ctx, sc)
	}
	if err != nil {
		return page.Page[vuln.Advisory]{}, err
	}
	if len(entries) > p.Size {
		entries = entries[:p.Size]
		last := entries[p.Size-1]
		out.Last = &page.Cursor{UID: last.uid()}
		if by == byUpdate {
			out.Last.Number = last.updated
		}
	}
	out.Items, err = s.fetchAdvisories(ctx, entries, whole)
	return out, err
}

// partitions returns all partitions in a scope, ordered by group.
func (s *Store) partitions(ctx context.Context, sc store.Scope) (parts []partition, _ error) {
	for _, c := range groupConditions(sc) {
		err := s.Rows(ctx, `SELECT id, grp, signature FROM advisory_partitions WHERE `+c.text, c.args,
			func(row store.Scanner) (bool, error) {
				var part partition
				var text string
				if err := row.Scan(&part.id, &part.group, &text); err != nil {
					return false, err
				}
				err := json.Unmarshal([]byte(text), &part.signature) // the text was encoded by newDraft
				parts = append(parts, part)
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(parts, func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.id, b.id))
	})
	return slices.CompactFunc(parts, func(a, b partition) bool { return a.id == b.id }), nil
}

// groupConditions returns conditions on the column grp. Each is the condition of a separate statement, and the
// statements together select the groups of a scope.
func groupConditions(sc store.Scope) (conditions []condition) {
	var groups []resource.UID
	for _, uid := range sc.Rows {
		groups = append(groups, uid.Parent())
	}
	groups = append(groups, sc.Children)
	for _, g := range sc.Below {
		conditions = append(conditions,
			condition{`grp >= $1 AND grp < $2`, []any{string(g) + "/", string(g) + "0"}})
		groups = append(groups, g)
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		if g != "" {
			conditions = append(conditions, condition{`grp = $1`, []any{string(g)}})
		}
	}
	return conditions
}

// A condition is the text of a WHERE clause and its arguments.
type condition struct {
	text string
	args []any
}

// groupsOf returns the groups of partitions, which are ordered by group.
func groupsOf(parts []partition) (groups []resource.UID) {
	for _, part := range parts {
		if len(groups) == 0 || groups[len(groups)-1] != part.group {
			groups = append(groups, part.group)
		}
	}
	return groups
}

// An advisoryList is one request for a page of advisories.
type advisoryList struct {
	s          *Store
	by         order
	p          page.Request
	f          vuln.AdvisoryFilter
	partitions []partition
	groups     []resource.UID

	generations []groupGenerations // set if there are keyed filters
}

// A keyedFilter is a field of the filter whose values have keys in an index.
type keyedFilter struct {
	field  field
	values []string
}

// keyedFilters returns the keyed filters that are set.
func (l *advisoryList) keyedFilters() (filters []keyedFilter) {
	for _, v := range []keyedFilter{
		{artifactName, l.f.ArtifactNames}, {componentName, l.f.ComponentNames},
		{componentLocation, l.f.ComponentLocations}, {alias, l.f.Aliases}, {legacyID, l.f.LegacyIDs},
	} {
		if len(v.values) > 0 {
			filters = append(filters, v)
		}
	}
	return filters
}

// ranges returns the index ranges that contain exactly the advisories that pass the filter. All ranges are of one kind:
// by group, by partition, or by one name. ok is false if no ranges correspond to the filter.
func (l *advisoryList) ranges(sc store.Scope) (in indexRanges, ok bool) {
	values := l.keyedFilters()
	partitioned := filtersPartitions(l.f)
	if len(sc.Rows) > 0 || len(l.f.IDs) > 0 || l.f.Query != "" {
		return in, false
	}
	switch {
	case len(values) == 1 && !partitioned && len(values[0].values) == 1 && values[0].field < alias:
		in.table, in.column = "advisory_names", "key"
		for _, g := range l.generations {
			for _, key := range g.keys(values[0].field, values[0].values[0]) {
				in.ranges = append(in.ranges, indexRange{key: key, group: g.group})
			}
		}
	case len(values) > 0:
		return in, false
	case partitioned:
		in.table, in.column = "advisories", "partition_id"
		for _, part := range l.partitions {
			if part.matches(l.f) {
				in.ranges = append(in.ranges, indexRange{key: part.id, group: part.group})
			}
		}
	default:
		in.table, in.column = "advisories", "parent"
		for _, g := range l.groups {
			in.ranges = append(in.ranges, indexRange{key: store.Segment(g), group: g})
		}
	}
	return in, true
}

// counters returns the kind and the column of the counters for the ranges.
func (in indexRanges) counters() (kind, column string) {
	switch in.column {
	case "parent":
		return "advisories", "children"
	case "partition_id":
		return store.PartitionCounter, "n"
	}
	return store.NameCounter, "n"
}

// walk reads a page from index ranges, and the entry after the page if there is one. total is the number of advisories
// in the ranges.
func (l *advisoryList) walk(ctx context.Context, in indexRanges) (entries []entry, total int64, _ error) {
	if len(in.ranges) == 0 {
		return nil, 0, nil
	}
	if err := l.countRanges(ctx, in); err != nil {
		return nil, 0, err
	}
	in.ranges = slices.DeleteFunc(in.ranges, func(n indexRange) bool { return n.n <= 0 })
	for _, n := range in.ranges {
		total += n.n
	}
	if len(in.ranges) == 0 {
		return nil, 0, nil
	}
	entries, err := l.merge(ctx, in, l.wanted())
	return entries[min(l.p.Skip, len(entries)):], total, err
}

// wanted returns the number of entries to read: the skipped entries, the page, and the first entry after the page.
func (l *advisoryList) wanted() int { return l.p.Skip + l.p.Size + 1 }

// countRanges sets the number of advisories of each range from the counters.
func (l *advisoryList) countRanges(ctx context.Context, in indexRanges) error {
	kind, column := in.counters()
	q := store.Query{Engine: l.s.Engine}
	var keys []int64
	for _, n := range in.ranges {
		keys = append(keys, n.key)
	}
	kindArg := q.Arg(kind)
	text := fmt.Sprintf(`SELECT s.i, (SELECT CAST(coalesce(sum(c.%s), 0) AS BIGINT) FROM `+store.CounterRows+` AS c
		WHERE c.kind = %s AND c.grp = s.v) FROM %s AS s`, column, kindArg, q.Engine.Unnest(&q, keys))
	return l.s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var i int
		var n int64
		err := row.Scan(&i, &n)
		in.ranges[i].n = n
		return false, err
	})
}

// merge returns the first n entries of the ranges after the cursor, in the order of the list.
func (l *advisoryList) merge(ctx context.Context, in indexRanges, n int) ([]entry, error) {
	if l.s.Engine.Postgres && len(in.ranges) > 1 {
		return l.mergeLateral(ctx, in, n)
	}
	var best []entry
	if l.p.Order.Desc { // with the newest entries first, few rows of the other ranges are read
		in.ranges = slices.Clone(in.ranges)
		slices.Reverse(in.ranges)
	}
	for _, a := range in.ranges {
		if from, to := l.bounds(a.group); from > to {
			continue
		}
		q := store.Query{Engine: l.s.Engine}
		text := l.rangeQuery(&q, in, a, n)
		var got []entry
		err := l.s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			e := entry{group: a.group}
			if err := row.Scan(&e.seg, &e.updated); err != nil {
				return false, err
			}
			if len(best) == n && l.compare(e, best[n-1]) > 0 {
				return true, nil
			}
			got = append(got, e)
			return false, nil
		})
		if err != nil {
			return nil, err
		}
		best = mergeEntries(best, got, n, l.compare)
	}
	return best, nil
}

// rangeQuery returns the statement that reads the first n entries of one range.
func (l *advisoryList) rangeQuery(q *store.Query, in indexRanges, a indexRange, n int) string {
	key := q.Arg(a.key)
	text := fmt.Sprintf(`SELECT t.seg, %s FROM %s AS t WHERE `, l.orderColumn(), in.table)
	if l.by == byUpdate {
		text += fmt.Sprintf(`t.%s = %s`, in.column, key) + l.afterCursor(q.Arg)
	} else {
		from, to := l.bounds(a.group)
		text += in.between(q.Engine, key, q.Arg(from), q.Arg(to))
	}
	return text + l.orderBy(in) + q.Limit(n)
}

// between returns the condition that an advisory is in a range and its segment is between two segments. For PostgreSQL
// it compares pairs, because with an equality PostgreSQL would walk the table by segments and discard the rows of other
// ranges. For SQLite it is an equality, because SQLite uses only the first half of a pair to seek.
func (in indexRanges) between(e engine.Engine, key, from, to string) string {
	if !e.Postgres {
		return fmt.Sprintf(`t.%s = %s AND t.seg >= %s AND t.seg <= %s`, in.column, key, from, to)
	}
	return fmt.Sprintf(`(t.%s, t.seg) >= (%s, %s) AND (t.%s, t.seg) <= (%s, %s)`,
		in.column, key, from, in.column, key, to)
}

// mergeLateral is merge in one statement for PostgreSQL, because a round trip to PostgreSQL costs more than reading
// many rows.
func (l *advisoryList) mergeLateral(ctx context.Context, in indexRanges, n int) (best []entry, _ error) {
	q := store.Query{Engine: l.s.Engine}
	text := l.rangesQuery(&q, in, n)
	err := l.s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var i int
		var e entry
		err := row.Scan(&i, &e.seg, &e.updated)
		if err == nil {
			e.group = in.ranges[i].group
		}
		best = append(best, e)
		return false, err
	})
	slices.SortFunc(best, l.compare)
	return best[:min(n, len(best))], err
}

// rangesQuery returns the statement that reads the first n entries of each range.
func (l *advisoryList) rangesQuery(q *store.Query, in indexRanges, n int) string {
	var keys []int64
	var froms, tos []int64
	for _, a := range in.ranges {
		from, to := l.bounds(a.group)
		keys, froms, tos = append(keys, a.key), append(froms, from), append(tos, to)
	}
	each := fmt.Sprintf(`unnest(%s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS s (v, b, e, i)`,
		q.Arg(keys), q.Arg(froms), q.Arg(tos))
	one := fmt.Sprintf(`SELECT t.seg, %s AS k FROM %s AS t WHERE `, l.orderColumn(), in.table)
	if l.by == byUpdate {
		one += fmt.Sprintf(`t.%s = s.v`, in.column) + l.afterCursor(q.Arg)
	} else {
		one += in.between(q.Engine, "s.v", "s.b", "s.e")
	}
	last := ""
	if l.by != byUID || len(l.groups) == 1 {
		last = fmt.Sprintf(` ORDER BY h.k%s, h.seg%s`, l.direction(), l.direction()) + q.Limit(n)
	}
	// Only the n ranges whose first entries come first can contain entries of the result.
	if last != "" && len(in.ranges) > n {
		each = fmt.Sprintf(`(SELECT s.v, s.b, s.e, s.i FROM %s CROSS JOIN LATERAL (%s%s LIMIT 1) AS h%s) AS s`, each, one,
			l.orderBy(in), last)
	}
	return fmt.Sprintf(`SELECT s.i - 1, h.seg, h.k FROM %s CROSS JOIN LATERAL (%s%s%s) AS h`, each, one, l.orderBy(in),
		q.Limit(n)) + last
}

// orderColumn returns the column that is read together with the segment of an entry, by which entries are compared.
func (l *advisoryList) orderColumn() string {
	if l.by == byUpdate {
		return "t.update_ms"
	}
	return "t.seg"
}

func (l *advisoryList) orderBy(in indexRanges) string {
	column := in.column
	if l.by == byUpdate {
		column = "update_ms"
	}
	return fmt.Sprintf(" ORDER BY t.%s%s, t.seg%s", column, l.direction(), l.direction())
}

func (l *advisoryList) direction() string {
	if l.p.Order.Desc {
		return " DESC"
	}
	return ""
}

// afterCursor returns the condition that an advisory comes after the cursor in the order of updates.
func (l *advisoryList) afterCursor(arg func(any) string) string {
	c := l.p.After
	if c == nil {
		return ""
	}
	than := ">"
	if l.p.Order.Desc {
		than = "<"
	}
	return fmt.Sprintf(" AND (t.update_ms, t.seg) %s (%s, %s)", than, arg(c.Number),
		arg(store.Segment(resource.UID(c.UID))))
}

// bounds returns the first and the last segment that advisories directly in group can have if they come after the
// cursor. It is used for lists that are ordered by segment. If no advisory comes after the cursor, from is greater than
// to.
func (l *advisoryList) bounds(group resource.UID) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	c := l.p.After
	if c == nil || l.by == byUpdate {
		return from, to
	}
	cursor := resource.UID(c.UID)
	seg := store.Segment(cursor)
	if l.by != byCreation && cursor.Parent() != group {
		if !group.Covers(cursor) { // all advisories of the group are before the cursor, or all are after it
			if (string(group)+"/" > c.UID) == l.p.Order.Desc {
				return 1, 0
			}
			return from, to
		}
		seg = store.Segment(cursor.Ancestor(group.Depth() + 1)) // the cursor's ancestor directly in the group
		if l.p.Order.Desc {
			return from, seg
		}
	}
	switch {
	case l.p.Order.Desc && seg == math.MinInt64, !l.p.Order.Desc && seg == math.MaxInt64:
		return 1, 0
	case l.p.Order.Desc:
		return from, seg - 1
	}
	return seg + 1, to
}

// compare compares entries in the order of the list.
func (l *advisoryList) compare(a, b entry) int {
	n := 0
	switch {
	case l.by == byUpdate:
		n = cmp.Or(cmp.Compare(a.updated, b.updated), cmp.Compare(a.seg, b.seg))
	case l.by == byUID && a.group != b.group:
		n = cmp.Compare(a.uid(), b.uid())
	default:
		n = cmp.Compare(a.seg, b.seg)
	}
	if l.p.Order.Desc {
		return -n
	}
	return n
}

// mergeEntries merges two sorted lists and returns the first n entries.
func mergeEntries(a, b []entry, n int, order func(a, b entry) int) []entry {
	if len(a) == 0 {
		return b[:min(n, len(b))]
	}
	out := make([]entry, 0, min(n, len(a)+len(b)))
	for len(out) < n && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && order(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// fetchAdvisories reads the advisories for entries, in the same order. It omits advisories that were deleted since the
// entries were read.
func (s *Store) fetchAdvisories(ctx context.Context, entries []entry, whole bool) ([]vuln.Advisory, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	index := make(map[int64]int, len(entries))
	segs := make([]int64, len(entries))
	for i, e := range entries {
		index[e.seg], segs[i] = i, e.seg
	}
	columns := advisoryColumns
	if whole {
		columns = fullColumns
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`, columns,
		s.Engine.Unnest(&q, segs))
	items := make([]vuln.Advisory, len(entries))
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		a, err := scanAdvisory(row, whole)
		if err == nil {
			items[index[store.Segment(a.UID)]] = a
		}
		return false, err
	})
	return slices.DeleteFunc(items, func(a vuln.Advisory) bool { return a.UID == "" }), err
}
