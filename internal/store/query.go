package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Query builds the statements that read a list, and collects their arguments. A copy of a
// Query can build another statement.
type Query struct {
	Engine    engine.Engine
	Table     string
	Columns   string
	joins     string
	Column    string // the column to sort by
	name      string // the name that a row must have, or ""
	prefix    string // the prefix that names must have, or ""; only if the list is sorted by name
	where     []Condition
	required  []requirement
	classes   []resource.TagClass // selected tag classes; nil if the resources are not tags
	direction resource.Direction  // selects pulls, pushes or both
	Page      page.Request
	Args      []any
}

// A requirement is a uid from the caller, and the tables that may contain it. Rows refer to their parent by its segment
// alone. A caller could combine the segment of another tenant's resource with the uid of a group of its own, and would
// be authorized for that uid. So a list is empty unless a resource with the whole uid exists.
type requirement struct {
	uid    resource.UID
	tables []string
}

// require adds a uid that must be in one of the tables. An empty table name is ignored.
func (q *Query) require(uid resource.UID, tables ...string) {
	tables = slices.DeleteFunc(tables, func(table string) bool { return table == "" })
	q.required = append(q.required, requirement{uid, tables})
}

// requirements returns the condition that every required uid exists.
func (q *Query) requirements() string {
	text := ""
	for _, m := range q.required {
		uid := q.Arg(string(m.uid))
		var either []string
		for _, table := range m.tables {
			either = append(either, "EXISTS (SELECT 1 FROM "+table+" AS m WHERE m.uid = "+uid+")")
		}
		text += " AND (" + strings.Join(either, " OR ") + ")"
	}
	return text
}

// Arg adds an argument and returns its placeholder, such as $1.
func (q *Query) Arg(v any) string {
	q.Args = append(q.Args, v)
	return "$" + itoa(len(q.Args))
}

// page returns the statement that reads the page from one span.
func (q *Query) page(sp span) string {
	if q.Page.Skip == 0 {
		return fmt.Sprintf("SELECT %s FROM %s%s WHERE %s ORDER BY %s%s",
			q.Columns, q.from(sp), q.joins, q.in(sp)+q.After(), q.Order(), q.Limit(q.Page.Size+1))
	}
	// The inner statement reads only the index. The outer one reads rows for the page only.
	segs := fmt.Sprintf("SELECT t.seg FROM %s WHERE %s ORDER BY %s%s OFFSET %s",
		q.from(sp), q.in(sp)+q.After(), q.Order(), q.Limit(q.Page.Size+1), q.Arg(q.Page.Skip))
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (%s) ORDER BY %s", q.Columns, q.Table, q.joins, segs,
		q.Order())
}

// from returns the FROM clause. For a range of uids it also names the index for SQLite. Otherwise SQLite, with
// statistics, would choose another index that ends in the uid, and would sort the rows. It would also read all tags
// instead of the few that have a flag.
func (q *Query) from(sp span) string {
	text := q.Table + " AS t"
	if q.Engine.Postgres || q.Column != "uid" || sp.below == "" {
		return text
	}
	if !q.filtered() {
		return text + " INDEXED BY " + q.Table + "_uid"
	}
	if i := slices.IndexFunc(q.where, func(c Condition) bool { return c.flag }); i >= 0 {
		return text + " INDEXED BY " + q.Table + "_" + q.where[i].column
	}
	return text
}

// keys returns the statement that reads the keys of the first n rows in a span.
func (q *Query) keys(sp span, n int) string {
	return fmt.Sprintf("SELECT t.seg, t.%s FROM %s WHERE %s ORDER BY %s%s",
		q.Column, q.from(sp), q.in(sp)+q.After(), q.Order(), q.Limit(n))
}

// fetch returns the statement that reads rows by their segments.
func (q *Query) fetch(segs []int64) string {
	q.Args = nil
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (SELECT v FROM %s AS s) ORDER BY %s",
		q.Columns, q.Table, q.joins, q.Engine.Unnest(q, segs), q.Order())
}

// lateral returns the statement that reads the page from several spans, because in PostgreSQL a round trip costs more
// than many rows. The statement reads only indexes, and then the rows of the page.
func (q *Query) lateral(spans []span) string {
	var parts []string
	for _, group := range byDepth(spans) {
		parts = append(parts, q.walk(group))
	}
	dir := q.dir()
	keys := fmt.Sprintf("SELECT seg FROM (%s) AS k ORDER BY k%s, seg%s%s OFFSET %s",
		strings.Join(parts, " UNION ALL "), dir, dir, q.Limit(q.Page.Size+1), q.Arg(q.Page.Skip))
	return fmt.Sprintf("SELECT %s FROM %s AS t%s WHERE t.seg IN (%s) ORDER BY %s", q.Columns, q.Table, q.joins, keys,
		q.Order())
}

// walk returns a SELECT of the first keys in spans that have the same shape. If there are more spans than needed rows,
// only the spans whose first rows come first can contribute to the page.
func (q *Query) walk(spans []span) string {
	need := q.need()
	if len(spans) == 1 {
		return fmt.Sprintf("(SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s ORDER BY %s%s)",
			q.Column, q.Table, q.in(spans[0])+q.After(), q.Order(), q.Limit(need))
	}
	from, on := q.joined(spans)
	rest := q.conditions() + q.After()
	if len(spans) > need {
		from = fmt.Sprintf("(SELECT s.v FROM %s AS s CROSS JOIN LATERAL "+
			"(SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s%s ORDER BY %s LIMIT 1) AS h ORDER BY h.k%s, h.seg%s%s)",
			from, q.Column, q.Table, on, rest, q.Order(), q.dir(), q.dir(), q.Limit(need))
	}
	return fmt.Sprintf("(SELECT h.seg, h.k FROM %s AS s CROSS JOIN LATERAL "+
		"(SELECT t.seg, t.%s AS k FROM %s AS t WHERE %s%s ORDER BY %s%s) AS h)",
		from, q.Column, q.Table, on, rest, q.Order(), q.Limit(need))
}

// joined returns a table s of subtrees that have the same depth, and the condition that t is in the subtree s.
func (q *Query) joined(spans []span) (from, on string) {
	d := spans[0].below.Depth()
	if q.ranged(d) {
		var uids []string
		for _, sp := range spans {
			uids = append(uids, string(sp.below))
		}
		if spans[0].self {
			return q.Engine.Unnest(q, uids), "t.uid >= s.v AND t.uid < s.v || '0'"
		}
		return q.Engine.Unnest(q, uids), "t.uid > s.v || '/' AND t.uid < s.v || '0'"
	}
	var segs []int64
	for _, sp := range spans {
		segs = append(segs, Segment(sp.below))
	}
	return q.Engine.Unnest(q, segs), fmt.Sprintf("t.a%d = s.v", d)
}

// byDepth groups the spans that one statement can read: subtrees that have the same depth.
func byDepth(spans []span) [][]span {
	var out [][]span
	groups := map[int]int{}
	for _, sp := range spans {
		i, ok := groups[sp.below.Depth()]
		if sp.below == "" || !ok {
			i = len(out)
			out = append(out, nil)
			groups[sp.below.Depth()] = i
		}
		out[i] = append(out[i], sp)
	}
	return out
}

// ranged reports whether subtrees at depth d are read as a range of uids. They are if the list is sorted by uid, if an
// index (column, uid) serves a filter, or if no index in the order of the sort column reaches that depth.
func (q *Query) ranged(d int) bool {
	if len(q.where) > 0 {
		return true
	}
	if q.name != "" {
		return d > levels["name"]
	}
	return q.Column == "uid" || d > levels[q.Column]
}

// in returns the condition that a row belongs to a span and passes the filters. It
// is written so that one index serves it.
func (q *Query) in(sp span) string {
	switch {
	case sp.children != "":
		return "t.parent = " + q.Arg(Segment(sp.children)) + q.conditions()
	case sp.below == "":
		return fmt.Sprintf("t.uid IN (SELECT v FROM %s AS s)", q.Engine.Unnest(q, sp.set)) + q.conditions()
	case !q.ranged(sp.below.Depth()):
		return fmt.Sprintf("t.a%d = %s", sp.below.Depth(), q.Arg(Segment(sp.below))) + q.conditions()
	}
	from, to, than := string(sp.below)+"/", string(sp.below)+"0", ">"
	if sp.self {
		from, than = string(sp.below), ">="
	}
	// SQLite uses only one lower bound of an index range: it must be the cursor
	if c := q.Page.After; c != nil && q.Column == "uid" {
		if q.Page.Order.Desc {
			to = min(to, c.UID)
		} else {
			from = max(from, c.UID)
		}
	}
	text := fmt.Sprintf("t.uid %s %s AND t.uid < %s", than, q.Arg(from), q.Arg(to))
	if d := levels["name"]; (q.name != "" || q.prefix != "") && len(q.where) == 0 {
		// use the index of the deepest ancestor that has one
		text += fmt.Sprintf(" AND t.a%d = %s", d, q.Arg(Segment(sp.below.Ancestor(d))))
	}
	return text + q.conditions()
}

// filtered reports whether a list has filters in addition to its place in the tree.
func (q *Query) filtered() bool { return q.name != "" || q.prefix != "" || len(q.where) > 0 }

// conditions returns the SQL of the filters.
func (q *Query) conditions() string {
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
		text += fmt.Sprintf(" AND t.%s %s %s", c.column, op, q.Arg(c.value))
	}
	if q.name != "" {
		text += " AND t.name = " + q.Arg(q.name)
	}
	if q.prefix != "" {
		text += " AND t.name >= " + q.Arg(q.prefix)
		if after := afterPrefix(q.prefix); after != "" {
			text += " AND t.name < " + q.Arg(after)
		}
	}
	if len(q.classes) > 0 && len(q.classes) < tagClasses {
		var all []string
		for _, c := range q.classes {
			all = append(all, itoa(int(c)))
		}
		text += " AND t.class IN (" + strings.Join(all, ", ") + ")"
	}
	switch q.direction {
	case resource.Pulled:
		text += " AND NOT t.push"
	case resource.Pushed:
		text += " AND t.push"
	}
	return text
}

// tagClasses is the number of tag classes.
const tagClasses = int(resource.EpochTag) + 1

// counted returns the condition that selects the counters that make up a total.
func (q *Query) counted() string {
	counters := []string{q.Table}
	switch q.Table {
	case "tags":
		counters = nil
		for _, c := range q.classes {
			counters = append(counters, TagCounter(c))
		}
	case "pulls":
		counters = PullCounters(q.direction)
	}
	for i, kind := range counters {
		counters[i] = q.Arg(kind)
	}
	return "c.kind IN (" + strings.Join(counters, ", ") + ")"
}

// After returns the condition that a row comes after the cursor.
func (q *Query) After() string {
	c := q.Page.After
	if c == nil {
		return ""
	}
	than := ">"
	if q.Page.Order.Desc {
		than = "<"
	}
	seg := Segment(resource.UID(c.UID))
	switch q.Column {
	case "uid":
		return fmt.Sprintf(" AND t.uid %s %s", than, q.Arg(c.UID))
	case "seg":
		// The condition includes parent, because with seg alone SQLite would read the whole table
		// in the order of seg.
		return fmt.Sprintf(" AND (t.parent, t.seg) %s (%s, %s)", than, q.Arg(Segment(resource.UID(c.UID).Parent())),
			q.Arg(seg))
	case "name":
		return fmt.Sprintf(" AND (%s, t.seg) %s (%s, %s)", q.key(), than, q.Arg(c.Key), q.Arg(seg))
	}
	return fmt.Sprintf(" AND (%s, t.seg) %s (%s, %s)", q.key(), than, q.Arg(c.Number), q.Arg(seg))
}

// key returns the sort column as it appears in the statement. If the list has filters, the column is hidden from the
// planner: the planner then finds the few matching rows by the filter and sorts them. Otherwise it would read the
// index of the sort column.
func (q *Query) key() string {
	filtered := len(q.where) > 0 || q.name != "" && q.Column != "name"
	switch {
	case !filtered || q.Column == "uid" && len(q.where) > 0:
		return "t." + q.Column
	case q.textual():
		return "(t." + q.Column + " || '')"
	}
	return "+t." + q.Column
}

func (q *Query) dir() string {
	if q.Page.Order.Desc {
		return " DESC"
	}
	return ""
}

// Order returns the terms of ORDER BY. A unique column needs no second term.
func (q *Query) Order() string {
	if q.Column == "uid" || q.Column == "seg" {
		return q.key() + q.dir()
	}
	return q.key() + q.dir() + ", t.seg" + q.dir()
}

// Limit returns the LIMIT clause. The limit is rounded up, so that few statements serve all page sizes.
func (q *Query) Limit(n int) string {
	for _, size := range []int{2, 51, 101, page.MaxSize + 1} {
		if n <= size {
			return " LIMIT " + itoa(size)
		}
	}
	return " LIMIT " + q.Arg(n)
}

// counters returns the statement that reads the counters of spans. Its results are 0 unless the requirements hold.
func (q *Query) counters(spans []span) string {
	col := "n"
	if spans[0].children != "" {
		col = "children"
	}
	var groups []int64
	for _, sp := range spans {
		groups = append(groups, Segment(sp.below+sp.children))
	}
	// Each counter has a subquery, because PostgreSQL would read all counters for a join.
	counted := q.counted()
	sum := fmt.Sprintf("(SELECT CAST(coalesce(sum(c.%s), 0) AS BIGINT) FROM counters AS c WHERE %s AND c.grp = s.v%s)",
		col, counted, q.requirements())
	if spans[0].self {
		sum += fmt.Sprintf(" + (SELECT count(*) FROM %s AS g WHERE g.seg = s.v%s)", q.Table, q.requirements())
	}
	return fmt.Sprintf("SELECT s.i, %s FROM %s AS s", sum, q.Engine.Unnest(q, groups))
}

// total returns the statement that counts the rows in a span.
func (q *Query) total(sp span) string {
	q.Page.After = nil
	return fmt.Sprintf("SELECT count(*) FROM %s AS t WHERE %s", q.Table, q.in(sp)+q.requirements())
}
