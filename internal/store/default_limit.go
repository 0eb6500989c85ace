package store

import (
	"context"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// allowances are the amounts that this process may add to counters before it counts again. They make default limits
// cheap: without them, every write of a limited kind would count. A process may add a sixteenth of the amount that was
// left when it counted. So the default limits are exact with one process, and each further replica can exceed them by
// a sixteenth at most.
type allowances struct {
	mu   sync.Mutex
	left map[counterKey]int64
}

const (
	allowedPart   = 16
	maxAllowances = 10_000 // number of counters; when it is exceeded, all are counted again
)

// take reports whether n may be added to a counter, and subtracts n from its allowance.
func (a *allowances) take(key counterKey, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left[key] < n {
		return false
	}
	a.left[key] -= n
	return true
}

// set stores the allowance of a counter that can grow by left.
func (a *allowances) set(key counterKey, left int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil || len(a.left) >= maxAllowances {
		a.left = map[counterKey]int64{}
	}
	a.left[key] = left / allowedPart
}

// keepDefault returns an error if adding n to a counter of an organization exceeds its default limit. paid are the
// organizations that it pays for.
func (t *Tx) keepDefault(
	ctx context.Context, key counterKey, n int64, org resource.UID, limit int64, paid []int64,
) error {
	if t.DB.allowances.take(key, n) {
		return nil
	}
	b := resource.Budget{UID: org, Limits: map[resource.Metric]int64{limited[key.kind]: limit}}
	left, err := t.keepBudget(ctx, key, n, b, limit, paid)
	if err == nil {
		t.DB.allowances.set(key, left)
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
