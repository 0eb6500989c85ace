package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// Count adds by to the counters for a kind in all groups above uid. On
// PostgreSQL the counters are changed at the end of the transaction, because
// their locks are held until the commit.
func (t *Tx) Count(ctx context.Context, kind string, uid resource.UID, by int) error {
	above := uid.Ancestors()
	if len(above) == 0 {
		return nil
	}
	increments := make([]increment, len(above))
	for i, g := range above {
		increments[i] = increment{key: counterKey{kind, Segment(g)}, n: int64(by)}
	}
	increments[0].organization = above[0]
	increments[len(increments)-1].children = int64(by)
	t.increments = append(t.increments, increments...)
	if t.DB.Engine.Postgres {
		return nil
	}
	var values []string
	args := []any{kind, t.Shard, by}
	for _, c := range increments {
		args = append(args, c.key.group, c.children)
		values = append(values, fmt.Sprintf("($1, $%d, $2, $3, $%d)", len(args)-1, len(args)))
	}
	_, err := t.Exec(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES `+strings.Join(values,
		", ")+counterAdd, args...)
	return err
}

const counterAdd = ` ON CONFLICT (kind, grp, shard)
	DO UPDATE SET n = counters.n + excluded.n, children = counters.children + excluded.children`

// An increment is an amount that a transaction adds to a counter.
type increment struct {
	key          counterKey
	n, children  int64
	organization resource.UID // the group of the counter if it is an organization, otherwise ""
}

type counterKey struct {
	kind  string
	group int64
}

// maxIncrements is the number of increments from which sumIncrements adds them up.
const maxIncrements = 4096

// sumIncrements adds up the increments of the same counter if there are many. A
// transaction with many changes calls it after each of them.
func (t *Tx) sumIncrements() {
	if len(t.increments) < max(maxIncrements, 2*t.summed) {
		return
	}
	places := map[counterKey]int{}
	var sums []increment
	for _, c := range t.increments {
		i, ok := places[c.key]
		if !ok {
			places[c.key] = len(sums)
			sums = append(sums, c)
			continue
		}
		sums[i].n += c.n
		sums[i].children += c.children
		sums[i].organization = cmp.Or(sums[i].organization, c.organization)
	}
	t.increments, t.summed = sums, len(sums)
}

// counterStatement returns the statement that adds increments to counters. It locks
// the counters in the order of their keys, so that two writers cannot deadlock.
func counterStatement(all []increment, shard int) engine.Statement {
	sums := map[counterKey]increment{}
	for _, c := range all {
		sum := sums[c.key]
		sums[c.key] = increment{key: c.key, n: sum.n + c.n, children: sum.children + c.children}
	}
	var kinds []string
	var groups, ns, directs []int64
	for _, place := range slices.SortedFunc(maps.Keys(sums), compareKeys) {
		kinds, groups = append(kinds, place.kind), append(groups, place.group)
		ns, directs = append(ns, sums[place].n), append(directs, sums[place].children)
	}
	return engine.Statement{
		Text: `INSERT INTO counters (kind, grp, shard, n, children)
			SELECT k, g, $1::bigint, n, c
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS u (k, g, n, c)` + counterAdd,
		Args: []any{shard, kinds, groups, ns, directs},
	}
}

// DropCounters deletes the counters of a deleted group, except for the kinds in kept.
func (t *Tx) DropCounters(ctx context.Context, group resource.UID, kept ...string) error {
	t.increments = slices.DeleteFunc(t.increments, func(c increment) bool {
		return c.key.group == Segment(group) && !slices.Contains(kept, c.key.kind)
	})
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

// CountKeys adds sign*by[key] to the counter for each key. It is for kinds that have a
// counter per key instead of per group. It locks the counters in the order of their keys, so
// that two writers cannot deadlock. If sign is negative, it deletes counters that become 0.
func (t *Tx) CountKeys(ctx context.Context, kind string, by map[int64]int, sign int) error {
	var rows [][]any
	for _, k := range slices.Sorted(maps.Keys(by)) {
		rows = append(rows, []any{kind, k, t.Shard, sign * by[k], 0})
	}
	err := t.InsertRows(ctx, `INSERT INTO counters (kind, grp, shard, n, children)`, rows,
		` ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n + excluded.n`)
	if err != nil || sign > 0 {
		return err
	}
	for _, row := range rows {
		if err := t.Later(ctx, `DELETE FROM counters WHERE kind = $1 AND grp = $2 AND shard = $3 AND n = 0`,
			row[:3]...); err != nil {
			return err
		}
	}
	return nil
}

// CounterRows is a subquery with the columns of counters that other packages may read. In a
// query it is followed by AS and a name. grp is the segment of a group, or the key if the
// kind has a counter per key.
const CounterRows = `(SELECT kind, grp, n, children FROM counters)`

// DropKeyCounters deletes counters of a kind that has a counter per key instead of per
// group. keys is a query that selects the keys; arg is its parameter $2.
func (t *Tx) DropKeyCounters(ctx context.Context, kind, keys string, arg any) error {
	return t.Later(ctx, `DELETE FROM counters WHERE kind = $1 AND grp IN (`+keys+`)`, kind, arg)
}

// kinds contains the tables that store resources. Each is also the name of a counter.
var kinds = []string{
	"groups", "identities", "roles", "role_bindings",
	"identity_providers", "account_associations", "group_invites", "external_group_role_mappings",
	"repos", "tags", "pulls",
	"advisories", "advisory_feeds",
	"accounts",
	"subscriptions", "deliveries",
	"budgets", "exceptions", "pull_rules", "signers", "access_rules", "role_requests",
	"registry_upstreams", "replications",
	TrashCounter,
}

// subsets contains the counters that count only a part of a table: tags that a list
// contains only on request, and the pushes in the table of pulls.
var subsets = []string{"tags.referrer", "tags.date", "tags.epoch", PushCounter}

// CounterKinds returns the names of the counters that count resources.
func CounterKinds() []string { return slices.Concat(kinds, subsets) }

// TagCounter returns the name of the counter for a class of tags. A list leaves out some
// classes, so its total must leave them out too.
func TagCounter(c resource.TagClass) string {
	return [...]string{"tags", "tags.referrer", "tags.date", "tags.epoch"}[c]
}

// TrashCounter is the name of the counter for entries in the trash.
const TrashCounter = "trash"

// PushCounter is the name of the counter for the pushes in the table of pulls.
const PushCounter = "pulls.push"

// PullCounter returns the name of the counter for pushes or for pulls.
func PullCounter(push bool) string {
	if push {
		return PushCounter
	}
	return "pulls"
}

// PullCounters returns the names of the counters whose sum is the total for a direction.
func PullCounters(way resource.Direction) []string {
	switch way {
	case resource.Pulled:
		return []string{PullCounter(false)}
	case resource.Pushed:
		return []string{PullCounter(true)}
	}
	return []string{PullCounter(false), PullCounter(true)}
}

// These counters have a counter per key instead of per group. They count advisories per partition and per name, and
// users of directories per identity provider.
const (
	PartitionCounter = "advisory_partitions"
	NameCounter      = "advisory_names"
	ScimUserCounter  = "scim_users"
)
