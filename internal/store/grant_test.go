package store_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// BenchmarkGrants measures how long a start takes: it reads a million
// bindings for a hundred thousand identities.
func BenchmarkGrants(b *testing.B) {
	const bindings, identities, groups = 1_000_000, 100_000, 1000
	s := storetest.Open(b, storetest.SQLite(b))
	ctx := b.Context()
	if err := s.SetManagedRoles(ctx, []resource.Role{ownerRole}); err != nil {
		b.Fatal(err)
	}
	org := newGroup("", "org")
	if _, err := s.InsertGroup(ctx, org); err != nil {
		b.Fatal(err)
	}
	var places []resource.UID
	for i := range groups {
		g := newGroup(org.UID, fmt.Sprintf("g%d", i))
		if _, err := s.InsertGroup(ctx, g); err != nil {
			b.Fatal(err)
		}
		places = append(places, g.UID)
	}
	err := s.LoadBindings(ctx, bindings, func(i int) resource.RoleBinding {
		who := resource.UID(fmt.Sprintf("%s/%016x", org.UID, i%identities))
		return newBinding(places[(i/identities*97+i)%groups], who, resource.OwnerRole)
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
