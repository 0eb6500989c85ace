package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// keepDefault returns an error if adding n to a counter of an organization exceeds its default limit. paid are the
// organizations that it pays for.
func (t *Tx) keepDefault(
	ctx context.Context, key counterKey, n int64, org resource.UID, limit int64, paid []int64,
) error {
	if t.DB.allowances.Take(key, n) {
		return nil
	}
	b := resource.Budget{UID: org, Limits: map[resource.Metric]int64{limited[key.kind]: limit}}
	left, err := t.keepBudget(ctx, key, n, b, limit, paid)
	if err == nil {
		t.DB.allowances.Set(key, left)
	}
	return err
}

// WithDefaults adds the default limits to the budget of an organization. A budget of a folder and the budget of an
// organization that another one pays for are returned unchanged.
func (s *DB) WithDefaults(ctx context.Context, b resource.Budget) (resource.Budget, error) {
	if !b.UID.IsRoot() || len(s.DefaultLimits) == 0 {
		return b, nil
	}
	budgets, err := s.Budgets(ctx)
	if err != nil || budgets.payer(b.UID) != b.UID {
		return b, err
	}
	limits := map[resource.Metric]int64{}
	for _, source := range []map[resource.Metric]int64{s.DefaultLimits, b.Limits} {
		for m, limit := range source {
			limits[m] = limit
		}
	}
	b.Limits = limits
	return b, nil
}
