package store_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestNobodyReadsWhatWasBefore checks that after a change to a group has returned, a read returns
// the changed group.
func TestNobodyReadsWhatWasBefore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		g := resource.Group{UID: resource.NewRoot(), Name: "g", CreateTime: s.Now(), UpdateTime: s.Now()}
		_, err := s.InsertGroup(t.Context(), g)
		testkit.Must(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 300 {
					if _, err := s.Group(t.Context(), g.UID); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if err := raise(t, s, s, g.UID); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		got, err := s.Group(t.Context(), g.UID)
		if err != nil || got.Description != "200" {
			t.Errorf("description = %q, %v, want 200", got.Description, err)
		}
		testkit.Must(t, s.DeleteGroup(t.Context(), g.UID, ""))
		if _, err := s.Group(t.Context(), g.UID); !errors.Is(err, fault.NotFound) {
			t.Errorf("after the delete: %v, want NotFound", err)
		}
	})
}

// raise adds one to the number in a description through one store, and reads it
// back through another.
func raise(t *testing.T, through, back *storetest.Store, uid resource.UID) error {
	var n int
	_, err := store.Edit(t.Context(), uid, through.Group, through.UpdateGroup, func(g *resource.Group) error {
		n, _ = strconv.Atoi(g.Description) // an empty description counts as 0
		n++
		g.Description = strconv.Itoa(n)
		return nil
	})
	if err != nil {
		return err
	}
	got, err := back.Group(t.Context(), uid)
	if now, _ := strconv.Atoi(got.Description); err == nil && now < n {
		err = fmt.Errorf("read %d after writing %d", now, n)
	}
	return err
}

// TestNobodyFindsARepoWhereItWas checks the cache of repo paths. A cached path
// must not be used after a name in the path has changed, or after it leads to
// another repo.
func TestNobodyFindsARepoWhereItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: s.Now(), UpdateTime: s.Now()}
		_, err := s.InsertGroup(t.Context(), org)
		testkit.Must(t, err)
		r := registrytest.AddRepo(t, s.RegistryStore, org.UID, "app")
		want := func(uid resource.UID, names ...string) {
			t.Helper()
			wantRepo(t, s, uid, names...)
		}
		want(r.UID, "org", "app")
		_, err = store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Name = "firm"
			return nil
		})
		testkit.Must(t, err)
		want("", "org", "app")
		want(r.UID, "firm", "app")
		_, err = store.Edit(t.Context(), r.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
			r.Name = "tool"
			return nil
		})
		testkit.Must(t, err)
		want("", "firm", "app")
		want(r.UID, "firm", "tool")
		testkit.Must(t, s.DeleteRepo(t.Context(), r.UID))
		want("", "firm", "tool")
		want(registrytest.AddRepo(t, s.RegistryStore, org.UID, "tool").UID, "firm", "tool")
	})
}
