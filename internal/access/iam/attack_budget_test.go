package iam_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestAttackManyBindings: an owner creates role bindings and folders without end, one by one and in batches. A budget
// limits both. Deleting a binding makes room for another one.
func TestAttackManyBindings(t *testing.T) {
	each(t, iam.Config{}, func(t *testing.T, w *world) {
		org := w.acme.UID
		used, err := w.store.Usage(t.Context(), org)
		must(t, err)
		bindings, groups := used[resource.BudgetBindings], used[resource.BudgetGroups]
		limits := map[resource.Metric]int64{
			resource.BudgetBindings: bindings + 3, resource.BudgetGroups: groups + 2,
		}
		_, err = w.store.UpdateBudget(t.Context(), resource.Budget{UID: org}, resource.Budget{UID: org, Limits: limits})
		must(t, err)

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

		for _, name := range []string{"one", "two"} {
			_, err := w.CreateGroup(w.owner, string(org), resource.Group{Name: name})
			must(t, err)
		}
		_, err = w.CreateGroup(w.owner, string(org), resource.Group{Name: "three"})
		want(t, "one more group", err, fault.FailedPrecondition)
	})
}
