package store_test

import (
	"context"
	"errors"
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

// iamWrites contains the writes whose consequences clients can ask for.
var iamWrites = []string{
	"InsertGroup", "UpdateGroup", "DeleteGroup", "InsertIdentity", "UpdateIdentity", "DeleteIdentity", "InsertRole",
	"UpdateRole",
	"DeleteRole", "InsertBinding", "InsertBindings", "UpdateBinding", "DeleteBinding", "InsertProvider", "UpdateProvider",
	"DeleteProvider", "InsertMapping", "DeleteMapping", "DeleteMappings", "InsertInvite", "UpdateInvite", "DeleteInvite",
	"InsertAssociation", "UpdateAssociation", "DeleteAssociation",
}

// TestRehearse simulates several writes in one transaction. It checks that a later write sees the earlier ones,
// that others see none of them, and that nothing is stored.
func TestRehearse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		heard := 0
		s.OnGrantChange(func(context.Context, int64) { heard++ })
		s.OnRevision(func() { heard++ })
		for _, name := range iamWrites {
			t.Run(name, func(t *testing.T) { rehearseAct(t, s, name, &heard) })
		}
		dbtest.WantExact(t, s.DB)
	})
}

func rehearseAct(t *testing.T, s *storetest.Store, name string, heard *int) {
	st := newStage(t, s, name)
	act, ok := st.acts()[name]
	if !ok {
		t.Fatal("there is no such write")
	}
	before, quiet := everything(t, s), *heard
	testkit.Must(t, s.Simulate(t.Context(), func(ctx context.Context, r *store.Simulation) error {
		g := iamtest.NewGroup(st.org.UID, "made-before")
		if _, err := st.InsertGroup(ctx, g); err != nil {
			return err
		}
		if err := act.fine(ctx); err != nil {
			return err
		}
		if _, err := st.Group(ctx, g.UID); err != nil {
			t.Errorf("what was made before is not seen: %v", err)
		}
		if _, err := st.Group(store.OutsideTransaction(ctx), g.UID); !errors.Is(err, fault.NotFound) {
			t.Errorf("others see it: %v", err)
		}
		if err := r.Undo(ctx); err != nil {
			return err
		}
		if _, err := st.Group(ctx, g.UID); !errors.Is(err, fault.NotFound) {
			t.Errorf("it is seen after it was undone: %v", err)
		}
		return nil
	}))
	if act.refused != nil {
		tried := s.Simulate(t.Context(), func(ctx context.Context, _ *store.Simulation) error { return act.refused(ctx) })
		real := act.refused(t.Context())
		if tried == nil || real == nil || tried.Error() != real.Error() {
			t.Errorf("rehearsed: %v\nin earnest: %v", tried, real)
		}
	}
	if diff := cmp.Diff(before, everything(t, s)); diff != "" || *heard != quiet {
		t.Errorf("a rehearsal left something; %d watchers ran\n%s", *heard-quiet, diff)
	}
	testkit.Must(t, act.fine(t.Context()))
}

// TestRehearseChanges checks that a simulation reports the changes to grants of all its writes.
func TestRehearseChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		st := newStage(t, s, "org")
		testkit.Must(t, s.Simulate(t.Context(), func(ctx context.Context, r *store.Simulation) error {
			testkit.Must(t, st.DeleteBinding(ctx, st.b.UID))
			_, err := store.Edit(ctx, st.spare.UID, st.Role, st.UpdateRole, func(r *resource.Role) error {
				r.Name = "x"
				return nil
			})
			testkit.Must(t, err)
			want := []store.GrantChange{{Identity: st.i.UID}, {Role: st.spare.UID}}
			if diff := cmp.Diff(want, r.Changes()); diff != "" {
				t.Error(diff)
			}
			return nil
		}))
	})
}
