package budgetdb

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var budgets = store.Kind[resource.Budget]{
	Table: "budgets", Label: "budget", GroupUID: true, Unique: "seg", // a budget and its group have the same UID
	Created: resource.BudgetCreated, Updated: resource.BudgetUpdated, Deleted: resource.BudgetDeleted,
	Columns: func(b *resource.Budget) []store.Column {
		return []store.Column{
			store.JSON("detail", b), // JSON with the limits; fields that have their own column are read from that column
			store.Key(&b.UID),
			store.Time("create_ms", &b.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &b.UpdateTime),
		}
	},
}

// Budget returns the budget of a group. For a group that has no budget, it returns a budget without limits, whose times
// are zero.
func (s *Store) Budget(ctx context.Context, group resource.UID) (resource.Budget, error) {
	b, err := store.Get(ctx, s.DB, &budgets, group)
	if errors.Is(err, fault.NotFound) {
		return resource.Budget{UID: group}, nil
	}
	return b, err
}

// ListBudgets returns one page of budgets.
func (s *Store) ListBudgets(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Budget], error) {
	return store.List(ctx, s.DB, &budgets, r, f, p)
}

// UpdateBudget replaces before by after. If the times of before are zero, the group must not have a budget yet.
// UpdateBudget returns store.ErrStale if the stored budget differs from before, and fault.NotFound if there is no such
// group.
func (s *Store) UpdateBudget(ctx context.Context, before, after resource.Budget) (resource.Budget, error) {
	err := s.Write(ctx, func(t *store.Tx) error {
		if err := t.RequireGroup(ctx, after.UID); err != nil {
			return err
		}
		if err := t.BudgetsChanged(ctx); err != nil {
			return err
		}
		if err := resource.CheckExpected(ctx, after.UID, before.UpdateTime); err != nil {
			return err
		}
		if !before.CreateTime.IsZero() {
			return store.Update(ctx, t, &budgets, before, &after)
		}
		after.CreateTime = s.Time()
		after.UpdateTime = after.CreateTime
		err := store.Insert(ctx, t, &budgets, after)
		if errors.Is(err, fault.AlreadyExists) {
			return store.ErrStale
		}
		return err
	})
	return after, err
}

// DeleteBudget removes the budget of a group. It returns nil if the group has none.
func (s *Store) DeleteBudget(ctx context.Context, group resource.UID) error {
	return s.Write(ctx, func(t *store.Tx) error { return deleteBudget(ctx, t, group) })
}

func deleteBudget(ctx context.Context, t *store.Tx, group resource.UID) error {
	b, err := store.Lock(ctx, t, &budgets, group, t.DB.Engine.ForDelete)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.BudgetsChanged(ctx); err != nil {
		return err
	}
	return store.Remove(ctx, t, &budgets, b)
}

// PruneBudgetDays removes the pull counts of days before day.
func (s *Store) PruneBudgetDays(ctx context.Context, day int64) error {
	_, err := s.Exec(ctx, `DELETE FROM budget_days WHERE day < $1`, day)
	return err
}
