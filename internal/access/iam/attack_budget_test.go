package iam_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestAttackManyBindings: an owner creates role bindings and folders without end, one by one and in batches, in an
// organization for which nobody has set a budget. The default limits of the installation apply to both. Deleting a
// binding makes room for another one, and a budget of the operator replaces the default.
func TestAttackManyBindings(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		org := w.acme.UID
		used, err := w.store.Usage(t.Context(), org)
		must(t, err)
		bindings, groups := used[resource.BudgetBindings], used[resource.BudgetGroups]
		w.store.DefaultLimits = map[resource.Metric]int64{
			resource.BudgetBindings: bindings + 3, resource.BudgetGroups: groups + 40,
		}

		bind := func() (resource.BoundRole, error) {
			b := resource.RoleBinding{Identity: resource.NewRoot(), Role: resource.OwnerRole}
			return w.CreateBinding(w.owner, org, b)
		}
		batch := []resource.RoleBinding{
			{Identity: resource.NewRoot(), Role: resource.OwnerRole}, {Identity: resource.NewRoot(), Role: resource.OwnerRole},
		}
		last, err := bind()
		must(t, err)
		_, err = w.CreateBindings(w.owner, org, batch)
		must(t, err)
		for range 3 {
			_, err := bind()
			want(t, "one more binding", err, fault.FailedPrecondition)
		}
		more := []resource.RoleBinding{{Identity: resource.NewRoot(), Role: resource.OwnerRole}}
		_, err = w.CreateBindings(w.owner, org, more)
		want(t, "a batch of bindings", err, fault.FailedPrecondition)
		must(t, w.DeleteBinding(w.owner, last.UID))
		_, err = bind()
		must(t, err)

		for n := range 40 {
			_, err := w.CreateGroup(w.owner, string(org), resource.Group{Name: fmt.Sprint("folder-", n)})
			must(t, err)
		}
		_, err = w.CreateGroup(w.owner, string(org), resource.Group{Name: "three"})
		want(t, "one more group", err, fault.FailedPrecondition)

		budget := map[resource.Metric]int64{resource.BudgetBindings: bindings + 4, resource.BudgetRepos: 1}
		_, err = w.store.UpdateBudget(t.Context(), resource.Budget{UID: org}, resource.Budget{UID: org, Limits: budget})
		must(t, err)
		_, err = bind()
		must(t, err)
		_, err = bind()
		want(t, "more bindings than the budget of the operator", err, fault.FailedPrecondition)
		_, err = w.CreateGroup(w.owner, string(org), resource.Group{Name: "three"})
		want(t, "one more group with a budget for other things", err, fault.FailedPrecondition)
	})
}
