package budgetdb

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A PullDay identifies a counter of the pulls from the repos of a group on one day.
type PullDay struct {
	Day   int64 // days since 1970, in UTC
	Group resource.UID
	Kind  string
}

// AddPulls adds pulls to the counters, and returns the new counts, which include the pulls that other replicas have
// added.
func (s *Store) AddPulls(ctx context.Context, added map[PullDay]int64) (total map[PullDay]int64, _ error) {
	days := make([]PullDay, 0, len(added))
	for d := range added {
		days = append(days, d)
	}
	slices.SortFunc(days, func(a, b PullDay) int { // a fixed order, so that two writers cannot deadlock
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	err := s.Write(ctx, func(t *store.Tx) error {
		total = map[PullDay]int64{}
		for _, d := range days {
			var counted int64
			key := []any{d.Day, store.Segment(d.Group), d.Kind}
			err := t.Row(ctx, `SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM budget_days
				WHERE day = $1 AND grp = $2 AND kind = $3`, key, &counted)
			if err != nil {
				return err
			}
			total[d] = counted + added[d]
		}
		for _, d := range days {
			if err := t.Later(ctx, `INSERT INTO budget_days (day, grp, kind, shard, n) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (day, grp, kind, shard) DO UPDATE SET n = budget_days.n + excluded.n`,
				d.Day, store.Segment(d.Group), d.Kind, t.Shard, added[d]); err != nil {
				return err
			}
		}
		return nil
	})
	return total, err
}

// PullsCounted returns the value of a counter.
func (s *Store) PullsCounted(ctx context.Context, d PullDay) (n int64, err error) {
	err = s.Row(ctx, `SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM budget_days
		WHERE day = $1 AND grp = $2 AND kind = $3`, []any{d.Day, store.Segment(d.Group), d.Kind}, &n)
	return n, err
}
