package iamdb_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
)

// BenchmarkGrants measures how long a start takes: it reads a million
// bindings for a hundred thousand identities.
func BenchmarkGrants(b *testing.B) {
	const bindings, identities, groups = 1_000_000, 100_000, 1000
	s := iamtest.Open(b, dbtest.SQLite(b))
	ctx := b.Context()
	if err := s.SetManagedRoles(ctx, []resource.Role{iamtest.OwnerRole}); err != nil {
		b.Fatal(err)
	}
	org := iamtest.NewGroup("", "org")
	if _, err := s.InsertGroup(ctx, org); err != nil {
		b.Fatal(err)
	}
	var places []resource.UID
	for i := range groups {
		g := iamtest.NewGroup(org.UID, fmt.Sprintf("g%d", i))
		if _, err := s.InsertGroup(ctx, g); err != nil {
			b.Fatal(err)
		}
		places = append(places, g.UID)
	}
	err := loadBindings(ctx, s.DB, bindings, func(i int) resource.RoleBinding {
		who := resource.UID(fmt.Sprintf("%s/%016x", org.UID, i%identities))
		return iamtest.NewBinding(places[(i/identities*97+i)%groups], who, resource.OwnerRole)
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		if _, err := s.Grants(ctx, func(iamdb.Grant) { n++ }); err != nil || n != bindings {
			b.Fatalf("%d grants, %v", n, err)
		}
	}
}

// loadBindings adds n bindings in one transaction. It records no events,
// counters or changes to grants.
func loadBindings(ctx context.Context, s *store.DB, n int, binding func(i int) resource.RoleBinding) error {
	return s.Write(ctx, func(t *store.Tx) error {
		for i := range n {
			b := binding(i)
			if _, err := t.Exec(ctx, `
				INSERT INTO role_bindings (seg, uid, parent, a1, a2, a3, identity, role, create_ms)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
				append(store.TreeColumns(b.UID), string(b.Identity), store.Segment(b.Role),
					store.MS(b.CreateTime))...); err != nil {
				return err
			}
		}
		return nil
	})
}
