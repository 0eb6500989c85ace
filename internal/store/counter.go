package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Count adds by to the counters of a kind in all groups above uid. On PostgreSQL
// that comes last in a write, because its locks are held until the commit.
func (t *Tx) Count(ctx context.Context, kind string, uid resource.UID, by int) error {
	above := uid.Ancestors()
	if len(above) == 0 {
		return nil
	}
	all := make([]increment, len(above))
	for i, g := range above {
		all[i] = increment{key: counterKey{kind, Segment(g)}, n: int64(by)}
	}
	all[len(all)-1].children = int64(by)
	t.increments = append(t.increments, all...)
	if t.DB.Engine.Postgres {
		return nil
	}
	var values []string
	args := []any{kind, t.Shard, by}
	for _, c := range all {
		args = append(args, c.key.group, c.children)
		values = append(values, fmt.Sprintf("($1, $%d, $2, $3, $%d)", len(args)-1, len(args)))
	}
	_, err := t.Exec(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES `+strings.Join(values,
		", ")+counterAdd, args...)
	return err
}

const counterAdd = ` ON CONFLICT (kind, grp, shard)
	DO UPDATE SET n = counters.n + excluded.n, children = counters.children + excluded.children`

// An increment is what a write adds to a counter.
type increment struct {
	key         counterKey
	n, children int64
}

type counterKey struct {
	kind  string
	group int64
}

// counterStatement is the statement that adds increments to counters. It locks them
// in the order of their keys, so that two writers cannot deadlock.
func counterStatement(all []increment, shard int) Statement {
	sums := map[counterKey]increment{}
	for _, c := range all {
		sum := sums[c.key]
		sums[c.key] = increment{c.key, sum.n + c.n, sum.children + c.children}
	}
	var kinds []string
	var groups, ns, directs []int64
	for _, place := range slices.SortedFunc(maps.Keys(sums), compareKeys) {
		kinds, groups = append(kinds, place.kind), append(groups, place.group)
		ns, directs = append(ns, sums[place].n), append(directs, sums[place].children)
	}
	return Statement{
		Text: `INSERT INTO counters (kind, grp, shard, n, children)
			SELECT k, g, $1::bigint, n, c
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS u (k, g, n, c)` + counterAdd,
		Args: []any{shard, kinds, groups, ns, directs},
	}
}

// DropCounters deletes the counters of a group that is gone, except the kinds to be kept, and the partitions
// (the table advisory_shelves) and generations (advisory_eras) of its advisories.
func (t *Tx) DropCounters(ctx context.Context, group resource.UID, kept ...string) error {
	t.increments = slices.DeleteFunc(t.increments, func(c increment) bool {
		return c.key.group == Segment(group) && !slices.Contains(kept, c.key.kind)
	})
	for _, text := range []string{
		`DELETE FROM counters WHERE kind = 'advisory_shelves' AND grp IN (SELECT id FROM advisory_shelves WHERE grp = $1)`,
		`DELETE FROM advisory_shelves WHERE grp = $1`,
		`DELETE FROM advisory_eras WHERE grp = $1`,
	} {
		if err := t.Later(ctx, text, string(group)); err != nil {
			return err
		}
	}
	for _, kind := range slices.Concat(kinds, subsets, []string{BytesCounter}) {
		if slices.Contains(kept, kind) {
			continue
		}
		if err := t.Later(ctx, `DELETE FROM counters WHERE kind = $1 AND grp = $2`, kind, Segment(group)); err != nil {
			return err
		}
	}
	return nil
}

// kinds are the tables of resources, and the kinds of counters.
var kinds = []string{
	"groups", "identities", "roles", "role_bindings",
	"identity_providers", "account_associations", "group_invites", "external_group_role_mappings",
	"repos", "tags", "pulls",
	"advisories", "advisory_feeds",
	"accounts",
	"subscriptions", "deliveries",
	"budgets", "exceptions", "pull_rules", "signers", "access_rules", "role_requests",
	"registry_upstreams",
	TrashCounter,
}

// subsets are the kinds of counters that count some rows of a table: the tags that
// a list leaves out unless it is asked for them, and the pushes among the pulls.
var subsets = []string{"tags.referrer", "tags.date", "tags.epoch", PushCounter}

// countedRows selects the rows that a kind of counter counts.
func countedRows(kind string) string {
	for c := resource.PlainTag; c <= resource.EpochTag; c++ {
		if kind == TagCounter(c) {
			return `tags WHERE class = ` + itoa(int(c))
		}
	}
	switch kind {
	case "pulls":
		return `pulls WHERE NOT push`
	case PushCounter:
		return `pulls WHERE push`
	}
	return kind
}

// A Drift is a counter that does not equal the rows it counts.
type Drift struct {
	Kind                      string
	Group                     resource.UID
	Key                       int64 // of what is no group
	Counted, Rows             int64
	DirectCounted, DirectRows int64
}

// Drifts compares every counter with the rows that it counts, in one state of the
// database. It reads everything, and is for tests and for an operator's check.
func (s *DB) Drifts(ctx context.Context) (all []Drift, err error) {
	err = s.Snapshot(ctx, func(read Reader) error {
		for _, kind := range slices.Concat(kinds, subsets) {
			drifts, err := groupDrifts(ctx, read, kind)
			if err != nil {
				return err
			}
			all = append(all, drifts...)
		}
		for kind, column := range map[string]string{PartitionCounter: "advisories.shelf", NameCounter: "advisory_names.key"} {
			drifts, err := keyDrifts(ctx, read, kind, column)
			if err != nil {
				return err
			}
			all = append(all, drifts...)
		}
		drifts, err := byteDrifts(ctx, read)
		all = append(all, drifts...)
		return err
	})
	return all, err
}

// groupDrifts compares counters by group with the rows below the group and
// those directly in it.
func groupDrifts(ctx context.Context, read Reader, kind string) (all []Drift, _ error) {
	rows, direct := map[resource.UID]int64{}, map[resource.UID]int64{}
	err := read(ctx, `SELECT uid FROM `+countedRows(kind), nil, func(row Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		for _, g := range uid.Ancestors() {
			rows[g]++
		}
		direct[uid.Parent()]++
		return false, err
	})
	if err != nil {
		return nil, err
	}
	err = read(ctx, `
		SELECT g.uid, CAST(coalesce(sum(c.n), 0) AS BIGINT), CAST(coalesce(sum(c.children), 0) AS BIGINT)
		FROM (SELECT seg, uid FROM groups UNION ALL SELECT seg, uid FROM identity_providers
			UNION ALL SELECT seg, uid FROM repos UNION ALL SELECT seg, uid FROM trash_repos
			UNION ALL SELECT seg, uid FROM subscriptions) AS g
		LEFT JOIN counters AS c ON c.grp = g.seg AND c.kind = $1
		GROUP BY g.uid`, []any{kind}, func(row Scanner) (bool, error) {
		d := Drift{Kind: kind}
		err := row.Scan(&d.Group, &d.Counted, &d.DirectCounted)
		d.Rows, d.DirectRows = rows[d.Group], direct[d.Group]
		if d.Counted != d.Rows || d.DirectCounted != d.DirectRows {
			all = append(all, d)
		}
		return false, err
	})
	return all, err
}

// keyDrifts compares counters by key with the rows that have the key in a
// column.
func keyDrifts(ctx context.Context, read Reader, kind, column string) (all []Drift, _ error) {
	table, _, _ := strings.Cut(column, ".")
	rows, err := ReadMap[int64, int64](ctx, read, `SELECT `+column+`, count(*) FROM `+table+` GROUP BY `+column)
	if err != nil {
		return nil, err
	}
	counters, err := ReadMap[int64, int64](ctx, read,
		`SELECT grp, CAST(sum(n) AS BIGINT) FROM counters WHERE kind = $1 GROUP BY grp`, kind)
	if err != nil {
		return nil, err
	}
	for key, n := range counters {
		if n != rows[key] {
			all = append(all, Drift{Kind: kind, Key: key, Counted: n, Rows: rows[key]})
		}
		delete(rows, key)
	}
	for key, n := range rows {
		all = append(all, Drift{Kind: kind, Key: key, Rows: n})
	}
	return all, nil
}

// TagCounter is the kind of counter that counts the tags of a class. A list leaves
// some classes out, and so must its total.
func TagCounter(c resource.TagClass) string {
	return [...]string{"tags", "tags.referrer", "tags.date", "tags.epoch"}[c]
}

// PushCounter is the kind of counter that counts the pushes among the pulls.
const PushCounter = "pulls.push"

// PullCounter is the kind of counter that counts pushes or pulls.
func PullCounter(push bool) string {
	if push {
		return PushCounter
	}
	return "pulls"
}

// PullCounters are the kinds of counters that make up the total of a direction.
func PullCounters(way resource.Direction) []string {
	switch way {
	case resource.Pulled:
		return []string{PullCounter(false)}
	case resource.Pushed:
		return []string{PullCounter(true)}
	}
	return []string{PullCounter(false), PullCounter(true)}
}

// Counters of advisories that are by key and not by group: by partition, which
// the schema calls a shelf, and by name.
const (
	PartitionCounter = "advisory_shelves"
	NameCounter      = "advisory_names"
)
