package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// A query is a statement of a list being written, with its arguments so far. A
// copy of it starts another.
type query struct {
	engine  engine
	table   string
	columns string
	joins   string
	col     string // the sort column
	name    string // the exact name asked for, or ""
	where   []condition
	there   []mention
	classes []resource.TagClass // of tags; nil for other kinds
	way     resource.Direction  // of pulls
	p       page.Request
	args    []any
}

// A mention is a uid that a caller has named, and the tables it can be in. Rows
// know what they are in by its segment alone. A uid that has somebody else's
// segment and the caller's own above it would be authorized as the caller's: so
// nothing is in it unless it is there, as a whole.
type mention struct {
	uid    resource.UID
	tables []string
}

// mention notes a uid that must be in one of the tables, of which "" is none.
func (q *query) mention(uid resource.UID, tables ...string) {
	tables = slices.DeleteFunc(tables, func(table string) bool { return table == "" })
	q.there = append(q.there, mention{uid, tables})
}

// real is the condition that all that was mentioned is there.
func (q *query) real() string {
	text := ""
	for _, m := range q.there {
		uid := q.arg(string(m.uid))
		var either []string
		for _, table := range m.tables {
			either = append(either, "EXISTS (SELECT 1 FROM "+table+" AS m WHERE m.uid = "+uid+")")
		}
		text += " AND (" + strings.Join(either, " OR ") + ")"
	}
	return text
}

func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + itoa(len(q.args))
}

// page is the statement that reads the page from one span.
func (q *query) page(sp span) string {
	if q.p.Skip == 0 {
		return fmt.Sprintf("SELECT %s FROM %s%s WHERE %s ORDER BY %s%s",
			q.columns, q.from(sp), q.joins, q.in(sp)+q.after(), q.order(), q.limit(q.p.Size+1))
	}
	// Walk the index alone, and fetch rows for the page only.
	segs := fmt.Sprintf("SELECT t.seg FROM %s WHERE %s ORDER BY %s%s OFFSET %s",
		q.from(sp), q.in(sp)+q.after(), q.order(), q.limit(q.p.Size+1), q.arg(q.p.Skip))
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (%s) ORDER BY %s", q.columns, q.table, q.joins, segs, q.order())
}

// from names the table. SQLite is told the index of a range of uids: once
// somebody has it gather statistics, it would rather skip through another index
// that ends in the uid, and sort; and it would rather walk all tags than the few
// with a flag.
func (q *query) from(sp span) string {
	text := q.table + " AS t"
	if q.engine.shared || q.col != "uid" || sp.below == "" {
		return text
	}
	if !q.filtered() {
		return text + " INDEXED BY " + q.table + "_uid"
	}
	if i := slices.IndexFunc(q.where, func(c condition) bool { return c.flag }); i >= 0 {
		return text + " INDEXED BY " + q.table + "_" + q.where[i].column
	}
	return text
}

// keys is the statement that reads the keys of a span's first n rows.
func (q *query) keys(sp span, n int) string {
	return fmt.Sprintf("SELECT t.seg, t.%s FROM %s WHERE %s ORDER BY %s%s",
		q.col, q.from(sp), q.in(sp)+q.after(), q.order(), q.limit(n))
}

// fetch is the statement that reads rows by their segments.
func (q *query) fetch(segs []int64) string {
	q.args = nil
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (SELECT v FROM %s AS s) ORDER BY %s",
		q.columns, q.table, q.joins, q.engine.each(q, segs), q.order())
}

// lateral is the statement that reads the page from several spans: in
// PostgreSQL a round trip costs more than many rows. It walks indexes alone,
// and fetches rows for the page only.
func (q *query) lateral(spans []span) string {
	var parts []string
	for _, group := range alike(spans) {
		parts = append(parts, q.walk(group))
	}
	dir := q.dir()
	keys := fmt.Sprintf("SELECT seg FROM (%s) AS k ORDER BY k%s, seg%s%s OFFSET %s",
		strings.Join(parts, " UNION ALL "), dir, dir, q.limit(q.p.Size+1), q.arg(q.p.Skip))
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (%s) ORDER BY %s", q.columns, q.table, q.joins, keys, q.order())
}

// walk selects the first keys of spans of one shape. Of more spans than rows
// are needed only those that start first can reach the page.
func (q *query) walk(spans []span) string {
	need := q.need()
	if len(spans) == 1 {
		return fmt.Sprintf("(SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s ORDER BY %s%s)",
			q.col, q.table, q.in(spans[0])+q.after(), q.order(), q.limit(need))
	}
	from, on := q.joined(spans)
	rest := q.conditions() + q.after()
	if len(spans) > need {
		from = fmt.Sprintf("(SELECT s.v FROM %s AS s CROSS JOIN LATERAL (SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s%s ORDER BY %s LIMIT 1) AS h ORDER BY h.k%s, h.seg%s%s)",
			from, q.col, q.table, on, rest, q.order(), q.dir(), q.dir(), q.limit(need))
	}
	return fmt.Sprintf("(SELECT h.seg, h.k FROM %s AS s CROSS JOIN LATERAL (SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s%s ORDER BY %s%s) AS h)",
		from, q.col, q.table, on, rest, q.order(), q.limit(need))
}

// joined is a table of subtrees of one depth, and the condition that t is in
// the one of s.
func (q *query) joined(spans []span) (from, on string) {
	d := spans[0].below.Depth()
	if q.ranged(d) {
		var uids []string
		for _, sp := range spans {
			uids = append(uids, string(sp.below))
		}
		return q.engine.each(q, uids), "t.uid > s.v || '/' AND t.uid < s.v || '0'"
	}
	var segs []int64
	for _, sp := range spans {
		segs = append(segs, segment(sp.below))
	}
	return q.engine.each(q, segs), fmt.Sprintf("t.a%d = s.v", d)
}

// alike groups spans that one statement can walk: subtrees of the same depth.
func alike(spans []span) [][]span {
	var out [][]span
	at := map[int]int{}
	for _, sp := range spans {
		i, ok := at[sp.below.Depth()]
		if sp.below == "" || !ok {
			i = len(out)
			out = append(out, nil)
			at[sp.below.Depth()] = i
		}
		out[i] = append(out[i], sp)
	}
	return out
}

// ranged tells whether subtrees that start at depth d are read as a range of
// uids: in that order, by an index (column, uid), or where no index in the
// sort column's order starts that deep.
func (q *query) ranged(d int) bool {
	if len(q.where) > 0 {
		return true
	}
	if q.name != "" {
		return d > levels["name"]
	}
	return q.col == "uid" || d > levels[q.col]
}

// in is the condition that a row belongs to a span, and to the filters, so
// written that one index serves it.
func (q *query) in(sp span) string {
	switch {
	case sp.children != "":
		return "t.parent = " + q.arg(segment(sp.children)) + q.conditions()
	case sp.below == "":
		return fmt.Sprintf("t.uid IN (SELECT v FROM %s AS s)", q.engine.each(q, sp.set)) + q.conditions()
	case !q.ranged(sp.below.Depth()):
		return fmt.Sprintf("t.a%d = %s", sp.below.Depth(), q.arg(segment(sp.below))) + q.conditions()
	}
	from, to := string(sp.below)+"/", string(sp.below)+"0"
	if c := q.p.After; c != nil && q.col == "uid" { // SQLite seeks to one bound only: make it the cursor
		if q.p.Order.Desc {
			to = min(to, c.UID)
		} else {
			from = max(from, c.UID)
		}
	}
	text := fmt.Sprintf("t.uid > %s AND t.uid < %s", q.arg(from), q.arg(to))
	if d := levels["name"]; q.name != "" && len(q.where) == 0 { // the index of the deepest ancestor that has one
		text += fmt.Sprintf(" AND t.a%d = %s", d, q.arg(segment(sp.below.Ancestor(d))))
	}
	return text + q.conditions()
}

// filtered tells whether a list has filters beside its place.
func (q *query) filtered() bool { return q.name != "" || len(q.where) > 0 }

// conditions are the filters.
func (q *query) conditions() string {
	text := ""
	for _, c := range q.where {
		if c.flag {
			text += " AND t." + c.column
			continue
		}
		op := "="
		if c.since {
			op = ">="
		}
		text += fmt.Sprintf(" AND t.%s %s %s", c.column, op, q.arg(c.value))
	}
	if q.name != "" {
		text += " AND t.name = " + q.arg(q.name)
	}
	if len(q.classes) > 0 && len(q.classes) < tagClasses {
		var all []string
		for _, c := range q.classes {
			all = append(all, itoa(int(c)))
		}
		text += " AND t.class IN (" + strings.Join(all, ", ") + ")"
	}
	switch q.way {
	case resource.Pulled:
		text += " AND NOT t.push"
	case resource.Pushed:
		text += " AND t.push"
	}
	return text
}

// tagClasses is how many classes of tags there are.
const tagClasses = int(resource.EpochTag) + 1

// counted are the kinds of counters that make up a total.
func (q *query) counted() string {
	counters := []string{q.table}
	switch q.table {
	case "tags":
		counters = nil
		for _, c := range q.classes {
			counters = append(counters, tagCounter(c))
		}
	case "pulls":
		counters = pullCounters(q.way)
	}
	for i, kind := range counters {
		counters[i] = q.arg(kind)
	}
	return "c.kind IN (" + strings.Join(counters, ", ") + ")"
}

// after is the condition that a row comes after the cursor.
func (q *query) after() string {
	c := q.p.After
	if c == nil {
		return ""
	}
	than := ">"
	if q.p.Order.Desc {
		than = "<"
	}
	seg := segment(resource.UID(c.UID))
	switch q.col {
	case "uid":
		return fmt.Sprintf(" AND t.uid %s %s", than, q.arg(c.UID))
	case "seg":
		// Not seg alone: SQLite would walk the whole table by it.
		return fmt.Sprintf(" AND (t.parent, t.seg) %s (%s, %s)", than, q.arg(segment(resource.UID(c.UID).Parent())), q.arg(seg))
	case "name":
		return fmt.Sprintf(" AND (%s, t.seg) %s (%s, %s)", q.key(), than, q.arg(c.Key), q.arg(seg))
	}
	return fmt.Sprintf(" AND (%s, t.seg) %s (%s, %s)", q.key(), than, q.arg(c.Number), q.arg(seg))
}

// key is the sort column as the statement names it. With filters it is hidden
// from the planner: the few rows that pass are to be found by the filter and
// sorted, but a planner would rather walk the column's index for them.
func (q *query) key() string {
	filtered := len(q.where) > 0 || q.name != "" && q.col != "name"
	switch {
	case !filtered || q.col == "uid" && len(q.where) > 0:
		return "t." + q.col
	case q.textual():
		return "(t." + q.col + " || '')"
	}
	return "+t." + q.col
}

func (q *query) dir() string {
	if q.p.Order.Desc {
		return " DESC"
	}
	return ""
}

// order is the ORDER BY list. What is unique has no second term.
func (q *query) order() string {
	if q.col == "uid" || q.col == "seg" {
		return q.key() + q.dir()
	}
	return q.key() + q.dir() + ", t.seg" + q.dir()
}

// limit is rounded up, so that few statements serve all page sizes.
func (q *query) limit(n int) string {
	for _, size := range []int{2, 51, 101, page.MaxSize + 1} {
		if n <= size {
			return " LIMIT " + itoa(size)
		}
	}
	return " LIMIT " + q.arg(n)
}

// counters is the statement that reads the counters of spans, none of which have
// any in a place that is not there.
func (q *query) counters(spans []span) string {
	col := "n"
	if spans[0].children != "" {
		col = "children"
	}
	var groups []int64
	for _, sp := range spans {
		groups = append(groups, segment(sp.below+sp.children))
	}
	// A subquery for each: PostgreSQL would read all counters for a join.
	counted := q.counted()
	return fmt.Sprintf("SELECT s.i, (SELECT CAST(coalesce(sum(c.%s), 0) AS BIGINT) FROM counters AS c WHERE %s AND c.grp = s.v%s) FROM %s AS s",
		col, counted, q.real(), q.engine.each(q, groups))
}

// total is the statement that counts a span.
func (q *query) total(sp span) string {
	q.p.After = nil
	return fmt.Sprintf("SELECT count(*) FROM %s AS t WHERE %s", q.table, q.in(sp)+q.real())
}
