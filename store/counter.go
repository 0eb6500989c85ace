package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
)

// count records that by resources of the kind came to (or went from) the place
// of uid. It comes late in a write, because its locks last until the commit; it
// takes them root first, so that two writers never wait for each other.
func (t *tx) count(ctx context.Context, kind string, uid resource.UID, by int) error {
	above := uid.Ancestors()
	if len(above) == 0 {
		return nil
	}
	var values []string
	args := []any{kind, t.shard, by}
	for i, g := range above {
		direct := 0
		if i == len(above)-1 {
			direct = by
		}
		args = append(args, segment(g), direct)
		values = append(values, fmt.Sprintf("($1, $%d, $2, $3, $%d)", len(args)-1, len(args)))
	}
	return t.later(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES `+strings.Join(values, ", ")+`
		ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n + excluded.n, children = counters.children + excluded.children`, args...)
}

// uncount drops the counters of a group that is gone.
func (t *tx) uncount(ctx context.Context, group resource.UID) error {
	for _, kind := range kinds {
		if err := t.later(ctx, `DELETE FROM counters WHERE kind = $1 AND grp = $2`, kind, segment(group)); err != nil {
			return err
		}
	}
	return nil
}

// kinds are the tables of resources, and the kinds of counters.
var kinds = []string{
	"groups", "identities", "roles", "role_bindings",
	"identity_providers", "account_associations", "group_invites", "external_group_role_mappings",
	"accounts",
}

// A Drift is a counter that does not equal the rows it counts.
type Drift struct {
	Kind             string
	Group            resource.UID
	Counted, Rows    int64
	Direct, DirectOf int64
}

// Drifts compares every counter with the rows it stands for. It reads
// everything: it is for tests and for an operator's check.
func (s *Store) Drifts(ctx context.Context) ([]Drift, error) {
	var all []Drift
	for _, kind := range kinds {
		rows, direct := map[resource.UID]int64{}, map[resource.UID]int64{}
		err := s.rows(ctx, `SELECT uid FROM `+kind, nil, func(row scanner) (bool, error) {
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
		err = s.rows(ctx, `
			SELECT g.uid, CAST(coalesce(sum(c.n), 0) AS BIGINT), CAST(coalesce(sum(c.children), 0) AS BIGINT)
			FROM (SELECT seg, uid FROM groups UNION ALL SELECT seg, uid FROM identity_providers) AS g LEFT JOIN counters AS c ON c.grp = g.seg AND c.kind = $1
			GROUP BY g.uid`, []any{kind}, func(row scanner) (bool, error) {
			d := Drift{Kind: kind}
			err := row.Scan(&d.Group, &d.Counted, &d.Direct)
			d.Rows, d.DirectOf = rows[d.Group], direct[d.Group]
			if d.Counted != d.Rows || d.Direct != d.DirectOf {
				all = append(all, d)
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
