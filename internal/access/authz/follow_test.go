package authz

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var viewerRole = resource.ManagedRoleUID("viewer")

func load(t *testing.T, s *storetest.Store) *Checker {
	t.Helper()
	c, err := Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// organization adds an organization and its owner to s.
func organization(t *testing.T, s *storetest.Store, name string) (group, owner resource.UID) {
	t.Helper()
	if err := s.SetManagedRoles(t.Context(), ManagedRoles()); err != nil {
		t.Fatal(err)
	}
	group, owner = resource.NewRoot(), resource.NewRoot()
	_, err := s.InsertGroup(t.Context(), resource.Group{
		UID: group, Name: name, CreateTime: time.Now(), UpdateTime: time.Now(),
	},
		resource.RoleBinding{UID: group.NewChild(), Identity: owner, Role: resource.OwnerRole})
	if err != nil {
		t.Fatal(err)
	}
	return group, owner
}

func bind(t *testing.T, s *storetest.Store, identity, group resource.UID) resource.UID {
	b := resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: viewerRole}
	if _, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b}); err != nil {
		t.Error(err)
	}
	return b.UID
}

func unbind(t *testing.T, s *storetest.Store, binding resource.UID) {
	if err := s.DeleteBinding(t.Context(), binding); err != nil {
		t.Error(err)
	}
}

func (c *Checker) allows(t *testing.T, identity, place resource.UID) error {
	return c.Require(WithCaller(t.Context(), Caller{Identity: identity}), resource.GroupsList, place)
}

// later moves the clock of the checker forward by d.
func (c *Checker) later(d time.Duration) { c.now = func() time.Time { return time.Now().Add(d) } }

// run runs the checker until the test ends.
func (c *Checker) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherReplicaIsHeard checks that a change of another replica has effect here
// from the moment at which its write has returned.
func TestAnotherReplicaIsHeard(t *testing.T) {
	url := storetest.Postgres(t)
	here, there := storetest.Open(t, url), storetest.Open(t, url)
	group, _ := organization(t, here, "acme")
	c := load(t, there)
	c.run(t)
	load(t, here).run(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				ann := resource.NewRoot()
				binding := bind(t, here, ann, group)
				if err := c.allows(t, ann, group); err != nil {
					t.Errorf("bound elsewhere: %v", err)
				}
				unbind(t, here, binding)
				if err := c.allows(t, ann, group); !errors.Is(err, fault.PermissionDenied) {
					t.Errorf("unbound elsewhere: error = %v, want %v", err, fault.PermissionDenied)
				}
			}
		})
	}
	wg.Wait()
}

// TestASilentReplicaIsWaitedFor checks that a replica that receives no changes does
// not block the changes of other replicas, and does not answer from stale grants.
func TestASilentReplicaIsWaitedFor(t *testing.T) {
	url := storetest.Postgres(t)
	here, there := storetest.Open(t, url), storetest.Open(t, url)
	group, _ := organization(t, here, "acme")
	c, ann := load(t, there), resource.NewRoot() // nothing calls the Run method of c
	if err := c.allows(t, ann, group); !errors.Is(err, fault.PermissionDenied) {
		t.Errorf("before: error = %v, want %v", err, fault.PermissionDenied)
	}
	bind(t, here, ann, group)
	if err := c.allows(t, ann, group); err != nil {
		t.Errorf("bound elsewhere: %v", err)
	}
}

// TestADeletionIsRepeated: if a replica crashed between the commit of a deletion and its answer, and the deletion is
// repeated on another replica, then no replica allows access any longer when the repeated call returns.
func TestADeletionIsRepeated(t *testing.T) {
	url := storetest.Postgres(t)
	dying, here, there := storetest.Open(t, url), storetest.Open(t, url), storetest.Open(t, url)
	group, owner := organization(t, here, "acme")
	ann := resource.NewRoot()
	binding := bind(t, here, ann, group)
	c, repeats := load(t, there), load(t, here) // nothing calls the Run methods of these checkers
	ctx, die := context.WithCancel(t.Context())
	defer die()
	var deleted sync.WaitGroup
	deleted.Go(func() { _ = dying.DeleteBinding(ctx, binding) })
	if err := c.allows(t, ann, group); err != nil {
		t.Fatalf("before: %v", err)
	}
	testkit.Until(t, func() bool {
		return dbtest.CountRows(t, here.DB, "role_bindings", "uid = '"+string(binding)+"'") == 0
	})
	die()
	deleted.Wait()
	err := repeats.Delete(WithCaller(t.Context(), Caller{Identity: owner}), resource.RoleBindingsDelete, binding,
		here.DeleteBinding)
	if err != nil {
		t.Fatal(err)
	}
	for name, replica := range map[string]*Checker{"the one that was asked": repeats, "another": c} {
		if err := replica.allows(t, ann, group); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("%s: error = %v, want %v", name, err, fault.PermissionDenied)
		}
	}
}

func TestDatabaseAway(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		db, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		s := storetest.Combine(db)
		group, owner := organization(t, s, "acme")
		began := time.Now()
		c := load(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		c.now = func() time.Time { return began }
		if err := c.allows(t, owner, group); err != nil {
			t.Errorf("within its term: %v", err)
		}
		c.later(3 * time.Second)
		want := error(fault.Unavailable)
		if !c.shared {
			want = nil // on SQLite there are no other writers, so every check is answered
		}
		ctx := WithCaller(t.Context(), Caller{Identity: owner})
		if err := c.allows(t, owner, group); !errors.Is(err, want) {
			t.Errorf("after it: error = %v, want %v", err, want)
		}
		c.committed(t.Context(), c.follow.applied.Load()+1)
		if err := c.RequireAnywhere(ctx, resource.GroupsList); !errors.Is(err, fault.Unavailable) {
			t.Errorf("with a change that could not be read: error = %v, want %v", err, fault.Unavailable)
		}
		if _, err := c.Owned(ctx); !errors.Is(err, fault.Unavailable) {
			t.Errorf("owning: error = %v, want %v", err, fault.Unavailable)
		}
		if _, err := c.Reach(ctx, resource.GroupsList); !errors.Is(err, fault.Unavailable) {
			t.Errorf("reach: error = %v, want %v", err, fault.Unavailable)
		}
	})
}

func TestAChangeThatCouldNotBeReadIsReadLater(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, _ := organization(t, s, "acme")
		c, ann := load(t, s), resource.NewRoot()
		at, x := c.follow.applied.Load(), *c.index
		bind(t, s, ann, group)
		c.follow.applied.Store(at) // simulates that the change was not applied
		x.identities = map[resource.UID]identityGrants{}
		c.index = &x
		c.behind.Store(true)
		if err := c.allows(t, ann, group); err != nil || c.behind.Load() {
			t.Errorf("error = %v, behind: %v", err, c.behind.Load())
		}
	})
}

func TestEverythingIsReadAnew(t *testing.T) {
	tests := map[string]func(newest int64) int64{
		"when the log does not reach back":   func(int64) int64 { return -10 },
		"when the database is an older copy": func(newest int64) int64 { return newest + 10 },
	}
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, owner := organization(t, s, "acme")
		for name, applied := range tests {
			t.Run(name, func(t *testing.T) {
				c := load(t, s)
				newest, ghost := c.follow.applied.Load(), resource.NewRoot()
				c.index = newIndex(s.Clock)
				// No later change names this identity.
				c.index.setGrants(ghost, []iamdb.Grant{{Identity: ghost, Group: group, Role: viewerRole}})
				c.follow.applied.Store(applied(newest))
				c.behind.Store(true)
				err := c.allows(t, owner, group)
				for start := time.Now(); errors.Is(err, fault.Unavailable) && time.Since(start) < time.Minute; {
					time.Sleep(50 * time.Millisecond) // other replicas may still have leases in the previous history
					err = c.allows(t, owner, group)
				}
				if err != nil || c.follow.applied.Load() != newest {
					t.Errorf("error = %v, at revision %d, want %d", err, c.follow.applied.Load(), newest)
				}
				if got := c.GrantsOf(ghost); got != nil {
					t.Errorf("an identity that is gone holds %v", got)
				}
			})
		}
	})
}

func TestACallerWhoLeavesDoesNotStopAChange(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, _ := organization(t, s, "acme")
		c, ann := load(t, s), resource.NewRoot()
		at := c.follow.applied.Load()
		bind(t, s, ann, group)
		newest := c.follow.applied.Load()
		c.follow.applied.Store(at)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.committed(ctx, newest)
		if got := c.follow.applied.Load(); got != newest || c.behind.Load() {
			t.Errorf("at revision %d, behind: %v, want %d", got, c.behind.Load(), newest)
		}
	})
}

func TestChecksGoOnWhileGrantsChange(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, owner := organization(t, s, "acme")
		c := load(t, s)
		stop := make(chan struct{})
		var checks, changes sync.WaitGroup
		for range 2 {
			checks.Go(func() {
				ctx := WithCaller(t.Context(), Caller{Identity: owner})
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := c.allows(t, owner, group); err != nil {
						t.Error(err)
						return
					}
					_, _ = c.Reach(ctx, resource.GroupsList) // reads concurrently, for the race detector
					c.GrantsOf(owner)
					c.Revoked(Caller{Identity: owner, Issued: time.Now()})
				}
			})
		}
		for range 4 {
			changes.Go(func() {
				for range 10 {
					ann := resource.NewRoot()
					binding := bind(t, s, ann, group)
					if err := c.allows(t, ann, group); err != nil {
						t.Errorf("bound: %v", err)
					}
					unbind(t, s, binding)
					if err := c.allows(t, ann, group); !errors.Is(err, fault.PermissionDenied) {
						t.Errorf("unbound: %v", err)
					}
				}
			})
		}
		changes.Wait()
		close(stop)
		checks.Wait()
	})
}
