package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// A group may be remembered, but never longer than it is true: whoever has
// changed it, or knows of the change, reads it as changed.
func TestNobodyReadsWhatWasBefore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		g := resource.Group{UID: resource.NewRoot(), Name: "g", CreateTime: s.Now(), UpdateTime: s.Now()}
		_, err := s.InsertGroup(t.Context(), g)
		must(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { // readers fill whatever remembers
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
		must(t, s.DeleteGroup(t.Context(), g.UID, ""))
		if _, err := s.Group(t.Context(), g.UID); !errors.Is(err, fault.NotFound) {
			t.Errorf("after the delete: %v, want NotFound", err)
		}
	})
}

// raise adds one to the number in a description through one store, and reads it
// back through another.
func raise(t *testing.T, through, back *store.Store, uid resource.UID) error {
	var n int
	_, err := through.UpdateGroup(t.Context(), uid, func(g *resource.Group) error {
		n, _ = strconv.Atoi(g.Description) // "" is 0
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

// TestManyReadTogether: those who share a question each get their own answer,
// also where there is none, and whoever gives up leaves the others alone.
func TestManyReadTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		org := addGroup(t, s, "", "org").UID
		var all []resource.Group
		for i := range 100 {
			all = append(all, addGroup(t, s, org, strconv.Itoa(i)))
		}
		var wg sync.WaitGroup
		for range 3 {
			for _, g := range all {
				wg.Go(func() {
					if got, err := s.Group(t.Context(), g.UID); err != nil || got != g {
						t.Errorf("got %v, %v, want %v", got, err, g)
					}
				})
				wg.Go(func() {
					if _, err := s.Group(t.Context(), org.NewChild()); !errors.Is(err, fault.NotFound) {
						t.Errorf("one that is not there: %v", err)
					}
				})
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					if _, err := s.Group(ctx, org.NewChild()); !errors.Is(err, context.Canceled) && !errors.Is(err, fault.NotFound) {
						t.Errorf("whoever gave up: %v", err)
					}
				})
			}
		}
		wg.Wait()
	})
}

// Where a repo is may be remembered, but no longer than until a name on the way
// to it is another, or it is another repo.
func TestNobodyFindsARepoWhereItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: s.Now(), UpdateTime: s.Now()}
		_, err := s.InsertGroup(t.Context(), org)
		must(t, err)
		r := addRepo(t, s, org.UID, "app")
		want := func(uid resource.UID, names ...string) {
			t.Helper()
			got, err := s.RepoAt(t.Context(), names)
			if got != uid || uid == "" && !errors.Is(err, fault.NotFound) {
				t.Errorf("repo at %q = %q, %v, want %q", names, got, err, uid)
			}
		}
		want(r.UID, "org", "app")
		_, err = s.UpdateGroup(t.Context(), org.UID, func(g *resource.Group) error { g.Name = "firm"; return nil })
		must(t, err)
		want("", "org", "app")
		want(r.UID, "firm", "app")
		_, err = s.UpdateRepo(t.Context(), r.UID, func(r *resource.Repo) error { r.Name = "tool"; return nil })
		must(t, err)
		want("", "firm", "app")
		want(r.UID, "firm", "tool")
		must(t, s.DeleteRepo(t.Context(), r.UID))
		want("", "firm", "tool")
		want(addRepo(t, s, org.UID, "tool").UID, "firm", "tool")
	})
}
