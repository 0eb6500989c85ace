package iam_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TestAttackOrganizationsEscapeBudget: the owner of an organization whose budget is used up creates more organizations,
// also through identities and owners of these. The budget limits all of them together, and the server limits their work
// together. An organization of somebody else is not affected.
func TestAttackOrganizationsEscapeBudget(t *testing.T) {
	story(t, iam.Config{CreateOrganizations: iam.Owners}, func(t *testing.T, w *world) {
		org := w.acme.UID
		limits := map[resource.Metric]int64{resource.BudgetRepos: 2}
		_, err := w.store.UpdateBudget(t.Context(), resource.Budget{UID: org}, resource.Budget{UID: org, Limits: limits})
		must(t, err)
		addRepo := func(group resource.UID) error {
			uid := group.NewChild()
			return w.store.InsertRepo(t.Context(), registry.Repo{UID: uid, Name: string(uid[len(uid)-16:])})
		}
		second, err := w.CreateGroup(w.owner, "", resource.Group{Name: "second"})
		must(t, err)
		must(t, addRepo(second.UID))
		must(t, addRepo(org))
		want(t, "a third repo, in the new organization", addRepo(second.UID), fault.FailedPrecondition)
		want(t, "a third repo, in the first organization", addRepo(org), fault.FailedPrecondition)

		other := resource.NewRoot() // an owner of only the new organization
		_, err = w.CreateBinding(w.owner, second.UID, resource.RoleBinding{Identity: other, Role: resource.OwnerRole})
		must(t, err)
		third, err := w.CreateGroup(w.as(other), "", resource.Group{Name: "third"})
		must(t, err)
		want(t, "a repo in a third organization", addRepo(third.UID), fault.FailedPrecondition)

		for _, g := range []resource.UID{second.UID, third.UID} {
			if got, first := w.store.Tenant(t.Context(), g), w.store.Tenant(t.Context(), org); got != first {
				t.Errorf("the tenant of %s is %s, want %s", g, got, first)
			}
		}
		used, err := w.store.Usage(t.Context(), org)
		must(t, err)
		if used[resource.BudgetRepos] != 2 {
			t.Errorf("the payer uses %d repos, want 2", used[resource.BudgetRepos])
		}
		const reason = "organizations that it pays for"
		if err := w.DeleteGroup(w.owner, org); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("deleting the payer: %v", err)
		}
		all, err := w.store.Usage(t.Context(), org)
		must(t, err)
		w.store.DefaultLimits = map[resource.Metric]int64{resource.BudgetGroups: all[resource.BudgetGroups] + 1}
		_, err = w.CreateGroup(w.owner, string(second.UID), resource.Group{Name: "folder"})
		must(t, err)
		for _, parent := range []resource.UID{org, second.UID, third.UID} {
			_, err := w.CreateGroup(w.as(other), string(parent), resource.Group{Name: "folder-too-many"})
			if parent == org {
				_, err = w.CreateGroup(w.owner, string(parent), resource.Group{Name: "folder-too-many"})
			}
			want(t, "a folder beyond the default limit of the payer", err, fault.FailedPrecondition)
		}
		must(t, addRepo(w.other.UID))
		must(t, w.store.SetPayer(t.Context(), second.UID, second.UID)) // the operator lets it pay for itself
		must(t, addRepo(second.UID))
		must(t, addRepo(third.UID))
		want(t, "a third repo of the payer", addRepo(org), fault.FailedPrecondition)
	})
}
