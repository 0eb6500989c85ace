package authz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// write creates a group in a context, as a request does after its authorization.
func write(ctx context.Context, s *storetest.Store, parent resource.UID, name string) error {
	g := resource.Group{UID: parent.NewChild(), Name: name, CreateTime: time.Now(), UpdateTime: time.Now()}
	_, err := s.InsertGroup(ctx, g)
	return err
}

// countGroups returns how many groups there are.
func countGroups(t *testing.T, s *storetest.Store) (n int) {
	t.Helper()
	if err := s.Row(t.Context(), `SELECT count(*) FROM groups`, nil, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOwnChangeDoesNotEndAWrite checks that a caller can give up their own access.
func TestOwnChangeDoesNotEndAWrite(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		group, _ := organization(t, s, "acme")
		c, ann := load(t, s), resource.NewRoot()
		binding := bind(t, s, ann, group)
		ctx := WithCaller(t.Context(), Caller{Identity: ann})
		if err := c.Require(ctx, resource.GroupsList, group); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteBinding(ctx, binding); err != nil {
			t.Error(err)
		}
		if err := write(ctx, s, group, "later"); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("afterwards: error = %v, want %v", err, fault.PermissionDenied)
		}
	})
}

// TestGrantEndsInFlight checks that a write is not committed after a grant of its caller has ended, even if the write
// was authorized before and has waited for a lock.
func TestGrantEndsInFlight(t *testing.T) {
	s := storetest.Open(t, storetest.Postgres(t))
	group, _ := organization(t, s, "acme")
	c := load(t, s)
	c.run(t)
	end := time.Now().Add(3 * time.Second).Truncate(time.Second)
	ann := resource.NewRoot()
	b := resource.RoleBinding{UID: group.NewChild(), Identity: ann, Role: viewerRole, ExpireTime: end}
	if _, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		wait time.Duration
		err  error
	}{
		{"before the end", 0, nil}, {"after the end", time.Until(end) + time.Second, fault.PermissionDenied},
	} {
		ctx := WithCaller(t.Context(), Caller{Identity: ann})
		if err := c.Require(ctx, resource.GroupsList, group); err != nil {
			t.Fatal(err)
		}
		locked, done := make(chan struct{}), make(chan error, 1)
		go func() { // holds all locks that writes need for their commit
			done <- s.Write(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(17, k) FROM generate_series(0, 255) AS k`)
				close(locked)
				time.Sleep(tt.wait)
				return err
			})
		}()
		<-locked
		if err := write(ctx, s, group, tt.name); !errors.Is(err, tt.err) {
			t.Errorf("%s: error = %v, want %v", tt.name, err, tt.err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestRevocationRacesWrites revokes access on one replica while another one writes. No write is committed after the
// revocation has returned. On SQLite both are the same process.
func TestRevocationRacesWrites(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		here := storetest.Open(t, url)
		there := here
		if here.Replicated() {
			there = storetest.Open(t, url)
		}
		group, _ := organization(t, here, "acme")
		c := load(t, there)
		c.run(t)
		if there != here {
			load(t, here).run(t)
		}
		for round := range 20 {
			ann := resource.NewRoot()
			binding := bind(t, here, ann, group)
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() {
					for n := 0; ; n++ {
						ctx := WithCaller(t.Context(), Caller{Identity: ann})
						err := c.Require(ctx, resource.GroupsList, group)
						if err == nil {
							err = write(ctx, there, group, fmt.Sprint(round, "-", i, "-", n))
						}
						if err != nil {
							if !errors.Is(err, fault.PermissionDenied) {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			unbind(t, here, binding)
			before := countGroups(t, here)
			writers.Wait()
			if n := countGroups(t, here); n != before {
				t.Errorf("round %d: %d writes were committed after the revocation", round, n-before)
			}
		}
	})
}
