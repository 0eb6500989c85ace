package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// configurationWrites contains the writes that can be combined with others.
var configurationWrites = append(slices.Clone(iamWrites),
	"InsertRepo", "UpdateRepo", "DeleteRepo", "UpdateRepoReadme", "UpdateRegistrySettings", "DeleteRegistrySettings",
	"SetRetention", "DeleteRetention", "InsertUpstream", "UpdateUpstream", "DeleteUpstream",
	"InsertReplication", "UpdateReplication", "DeleteReplication", "InsertSigner", "DeleteSigner",
	"InsertPullRule", "UpdatePullRule", "DeletePullRule", "InsertExceptions",
	"DeleteException", "SetSLA", "DeleteSLA",
	"InsertFeed", "UpdateFeed", "DeleteFeed", "UpdateBudget", "DeleteBudget", "InsertSubscription", "DeleteSubscription",
	"InsertAccessRule", "DeleteAccessRule", "SetSignInRules",
)

// TestCombine makes each write together with another one. It checks that a later write sees the earlier one, that
// others see neither before the commit, that everything is stored with the events and counters of single writes, and
// that nothing is stored if one write is refused.
func TestCombine(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		for _, name := range configurationWrites {
			t.Run(name, func(t *testing.T) { combineAct(t, s, name) })
		}
		dbtest.WantExact(t, s.DB)
	})
}

func combineAct(t *testing.T, s *storetest.Store, name string) {
	combined := newStage(t, s, name)
	act, ok := combined.acts()[name]
	if !ok {
		t.Fatal("there is no such write")
	}
	if act.refused != nil {
		before := everything(t, s)
		err := s.Combine(t.Context(), func(ctx context.Context) error {
			_, err := combined.InsertGroup(ctx, iamtest.NewGroup(combined.org.UID, "refused"))
			testkit.Must(t, err)
			return act.refused(ctx)
		})
		if alone := act.refused(t.Context()); err == nil || err.Error() != alone.Error() {
			t.Errorf("combined: %v\nalone: %v", err, alone)
		}
		if diff := cmp.Diff(before, everything(t, s)); diff != "" {
			t.Errorf("a refused transaction left something\n%s", diff)
		}
	}
	begun, heard := len(dbtest.Events(t, s.DB)), 0
	s.OnGrantChange(func(context.Context, int64) { heard++ })
	testkit.Must(t, s.Combine(t.Context(), func(ctx context.Context) error {
		g := iamtest.NewGroup(combined.org.UID, "made-before")
		_, err := combined.InsertGroup(ctx, g)
		if err == nil {
			err = act.fine(ctx)
		}
		if err != nil {
			return err
		}
		_, err = combined.Group(ctx, g.UID)
		if _, outside := combined.Group(store.OutsideTransaction(ctx), g.UID); !errors.Is(outside, fault.NotFound) {
			t.Errorf("others see it before the commit: %v", outside)
		}
		return err
	}))
	events := dbtest.Events(t, s.DB)[begun:]
	if len(events) < 2 || events[0].Type != resource.GroupCreated {
		t.Errorf("%d events, beginning with %v", len(events), events)
	}
	if heard > 1 {
		t.Errorf("%d notifications of one commit", heard)
	}
}

// TestCombineStops checks that nothing is written after a failed write, and nothing with validate_only.
func TestCombineStops(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		st := newStage(t, s, "org")
		before := everything(t, s)
		insert := func(ctx context.Context, name string) error {
			_, err := st.InsertGroup(ctx, iamtest.NewGroup(st.org.UID, name))
			return err
		}
		err := s.Combine(t.Context(), func(ctx context.Context) error {
			testkit.Must(t, insert(ctx, "a"))
			if err := insert(ctx, "a"); !errors.Is(err, fault.AlreadyExists) {
				t.Errorf("a second group of the same name: %v", err)
			}
			if insert(ctx, "b") == nil {
				t.Error("a write after a failed one succeeded")
			}
			return nil
		})
		if !errors.Is(err, fault.AlreadyExists) {
			t.Errorf("the failed write is not reported: %v", err)
		}
		testkit.Must(t, s.Combine(resource.WithDryRun(t.Context()), func(ctx context.Context) error {
			return insert(ctx, "a")
		}))
		if diff := cmp.Diff(before, everything(t, s)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestCombineBudget checks that budgets limit what the writes of a transaction add together.
func TestCombineBudget(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		limit := resource.Budget{UID: org.UID, Limits: map[resource.Metric]int64{resource.BudgetGroups: 3}}
		_, err := s.UpdateBudget(t.Context(), resource.Budget{UID: org.UID}, limit)
		testkit.Must(t, err)
		add := func(names ...string) error {
			return s.Combine(t.Context(), func(ctx context.Context) error {
				for _, name := range names {
					if _, err := s.InsertGroup(ctx, iamtest.NewGroup(org.UID, name)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		code := fault.From(add("a", "b", "c", "d")).Code
		if code != fault.FailedPrecondition && code != fault.ResourceExhausted {
			t.Errorf("four groups with a budget of three: %v", code)
		}
		testkit.Must(t, add("a", "b", "c"))
		dbtest.WantExact(t, s.DB)
	})
}
