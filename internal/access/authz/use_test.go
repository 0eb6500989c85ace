package authz

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// usesOf returns the names of the capabilities of a binding whose use is recorded.
func usesOf(t *testing.T, s *storetest.Store, binding resource.UID) (names []string) {
	t.Helper()
	all, err := s.UsesOf(t.Context(), []resource.UID{binding})
	if err != nil {
		t.Fatal(err)
	}
	for c := range all[binding] {
		names = append(names, c.String())
	}
	return names
}

// TestUses checks that a check counts as a use of the narrowest binding on the nearest group, and that uses are written
// when they are flushed.
func TestUses(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		s := storetest.Open(t, url)
		org, _ := organization(t, s, "acme")
		folder := resource.Group{UID: org.NewChild(), Name: "folder", CreateTime: time.Now(), UpdateTime: time.Now()}
		_, err := s.InsertGroup(t.Context(), folder)
		must(t, err)
		narrow := resource.Role{UID: org.NewChild(), Name: "narrow", Capabilities: resource.CapabilitySet("groups.list"),
			CreateTime: time.Now(), UpdateTime: time.Now()}
		must(t, s.InsertRole(t.Context(), narrow))
		who := resource.NewRoot()
		bind := func(group, role resource.UID) resource.UID {
			b := resource.RoleBinding{UID: group.NewChild(), Identity: who, Role: role, CreateTime: time.Now()}
			_, err := s.InsertBinding(t.Context(), b)
			must(t, err)
			return b.UID
		}
		above, wide, near := bind(org, narrow.UID), bind(folder.UID, viewerRole), bind(folder.UID, narrow.UID)
		c := load(t, s)
		c.RecordUses(true)
		ctx := WithCaller(t.Context(), Caller{Identity: who, Issued: time.Now()})
		below := folder.UID.NewChild()
		must(t, c.Require(ctx, resource.GroupsList, below))
		c.Holds(who, resource.RepoList, below) // Holds does not count as a use
		if c.RequireAll(ctx, resource.CapabilitySet("roles.list", "groups.delete"), below) == nil {
			t.Error("allowed")
		}
		if got := usesOf(t, s, near); got != nil {
			t.Errorf("written before it is flushed: %v", got)
		}
		must(t, c.FlushUses(t.Context()))
		if diff := cmp.Diff([][]string{nil, nil, {"groups.list"}},
			[][]string{usesOf(t, s, above), usesOf(t, s, wide), usesOf(t, s, near)}); diff != "" {
			t.Errorf("above, wide, near: %s", diff)
		}
		must(t, c.RequireAll(ctx, resource.CapabilitySet("groups.list", "repo.list"), below))
		must(t, c.Require(ctx, resource.GroupsList, org))
		must(t, s.DeleteBinding(t.Context(), near)) // the grants change before their uses are written
		must(t, c.FlushUses(t.Context()))
		if diff := cmp.Diff([][]string{{"groups.list"}, {"repo.list"}, nil},
			[][]string{usesOf(t, s, above), usesOf(t, s, wide), usesOf(t, s, near)}); diff != "" {
			t.Errorf("above, wide, near: %s", diff)
		}
	})
}

// TestUsesGreatestWins: if two replicas record the same use, then the later time is stored, even if it was written
// first.
func TestUsesGreatestWins(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		org, owner := organization(t, s, "acme")
		c := load(t, s)
		c.RecordUses(true)
		ctx := WithCaller(t.Context(), Caller{Identity: owner, Issued: time.Now()})
		must(t, c.Require(ctx, resource.GroupsList, org))
		c.mu.Lock()
		c.index.collectAllUses()
		used := c.index.uses.collected
		c.mu.Unlock()
		later := time.UnixMilli(2_000_000_000_000).UTC()
		must(t, s.RecordUses(t.Context(), used, later))
		must(t, s.RecordUses(t.Context(), used, later.Add(-time.Hour)))
		grants, err := s.GrantsOfAll(t.Context(), []resource.UID{owner})
		must(t, err)
		for binding := range grants {
			all, err := s.UsesOf(t.Context(), []resource.UID{binding})
			must(t, err)
			if got := all[binding][resource.GroupsList]; !got.Equal(later) {
				t.Errorf("last use is %s, want %s", got, later)
			}
		}
	})
}

// TestUsesWhileFlushing makes checks in many goroutines while uses are flushed and grants change. No use may be lost.
func TestUsesWhileFlushing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, owner := organization(t, s, "acme")
		c := load(t, s)
		c.RecordUses(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				as := WithCaller(t.Context(), Caller{Identity: owner, Issued: time.Now()})
				for ctx.Err() == nil {
					if err := c.Require(as, resource.GroupsList, org); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				b := resource.RoleBinding{UID: org.NewChild(), Identity: owner, Role: viewerRole, CreateTime: time.Now()}
				if _, err := s.InsertBinding(t.Context(), b); err != nil {
					t.Error(err)
				}
				if err := s.DeleteBinding(t.Context(), b.UID); err != nil {
					t.Error(err)
				}
			}
		})
		for ctx.Err() == nil {
			if err := c.FlushUses(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		must(t, c.Require(WithCaller(t.Context(), Caller{Identity: owner, Issued: time.Now()}), resource.RolesList, org))
		must(t, c.FlushUses(t.Context()))
		grants, err := s.GrantsOfAll(t.Context(), []resource.UID{owner})
		must(t, err)
		for binding := range grants {
			if got := usesOf(t, s, binding); len(got) != 2 {
				t.Errorf("used: %v", got)
			}
		}
	})
}
