package store_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestRefusedWithTheCommit: the database refuses a statement that a write has
// queued for the commit. The test checks that nothing of the write is left, and
// that the next write succeeds.
func TestRefusedWithTheCommit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		before := everything(t, s)
		for range 100 { // more writes than connections
			if err := s.WriteLater(t.Context(), iamtest.NewGroup(org.UID, "a")); err == nil {
				t.Fatal("a write succeeded whose last statement was refused")
			}
		}
		if diff := cmp.Diff(before, everything(t, s)); diff != "" {
			t.Error(diff)
		}
		iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
		dbtest.WantExact(t, s.DB)
	})
}

// TestCommitOfAFailedTransaction: a write ignores that the database refused a
// statement. PostgreSQL then answers COMMIT with ROLLBACK and without an error.
// The test checks that the write returns an error.
func TestCommitOfAFailedTransaction(t *testing.T) {
	s := storetest.Open(t, storetest.Postgres(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	before := everything(t, s)
	if err := s.WriteRegardless(t.Context()); err == nil {
		t.Error("a write that PostgreSQL rolled back succeeded")
	}
	if diff := cmp.Diff(before, everything(t, s)); diff != "" {
		t.Error(diff)
	}
	iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
	dbtest.WantExact(t, s.DB)
}

// TestCanceledBeforeTheCommit cancels writes that have changed something, and
// one that waits for a lock. It checks that the connections return to the pool
// without an open transaction.
func TestCanceledBeforeTheCommit(t *testing.T) {
	address := storetest.Postgres(t)
	s := storetest.Open(t, address)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	before := everything(t, s)
	backend, err := s.Backend(t.Context())
	testkit.Must(t, err)
	for range 100 { // more writes than connections
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.WriteThen(ctx, iamtest.NewGroup(org.UID, "a"), func() error {
			cancel()
			return nil
		}); !errors.Is(err, context.Canceled) {
			t.Fatalf("error = %v", err)
		}
	}
	watcher, err := pgx.Connect(t.Context(), address)
	testkit.Must(t, err)
	defer watcher.Close(t.Context())
	if n := sessions(t, watcher, `state LIKE 'idle in transaction%'`); n != 0 {
		t.Errorf("%d transactions are open", n)
	}
	if now, err := s.Backend(t.Context()); err != nil || now != backend {
		t.Errorf("the connection was not used again (%v)", err)
	}
	cancelWaiting(t, s, watcher, org.UID)
	if diff := cmp.Diff(before, everything(t, s)); diff != "" {
		t.Error(diff)
	}
	if n := s.Busy(); n != 0 {
		t.Errorf("%d connections were not returned", n)
	}
	iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
	dbtest.WantExact(t, s.DB)
}

// cancelWaiting makes a write wait for another one, and cancels both.
func cancelWaiting(t *testing.T, s *storetest.Store, watcher *pgx.Conn, uid resource.UID) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held, first, second := make(chan struct{}), make(chan error), make(chan error)
	go func() {
		first <- s.Write(ctx, func(x *store.Tx) error {
			if _, err := x.Exec(ctx, `UPDATE groups SET description = '' WHERE uid = $1`, string(uid)); err != nil {
				return err
			}
			close(held)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-held
	go func() {
		_, err := store.Edit(ctx, uid, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Description += "x"
			return nil
		})
		second <- err
	}()
	for sessions(t, watcher, `wait_event_type = 'Lock'`) == 0 { // until the write waits for the lock
	}
	cancel()
	for _, err := range []error{<-first, <-second} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
	}
}

// sessions returns the number of sessions of the database that a condition selects.
func sessions(t *testing.T, on *pgx.Conn, where string) (n int) {
	t.Helper()
	testkit.Must(t,
		on.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND `+where).Scan(&n))
	return n
}

// TestManyCreateTogether checks that writes that share a commit do not affect each other. A
// refused write returns its reason, and leaves no event and no count.
func TestManyCreateTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		iamtest.AddGroup(t, s.IAMStore, org, "taken") // so that the name is in use
		gone := iamtest.AddGroup(t, s.IAMStore, org, "gone").UID
		testkit.Must(t, s.DeleteGroup(t.Context(), gone, ""))
		before := len(dbtest.Events(t, s.DB))
		var wg sync.WaitGroup
		const rounds = 40
		for i := range rounds {
			name := strconv.Itoa(i)
			wg.Go(func() {
				if g, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org, name)); err != nil || g.Name != name {
					t.Errorf("create %s: %v", name, err)
				}
			})
			wg.Go(func() {
				if _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org, "taken")); !errors.Is(err, fault.AlreadyExists) {
					t.Errorf("one of a name that is taken: %v", err)
				}
			})
			wg.Go(func() {
				if _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(gone, name)); !errors.Is(err, fault.NotFound) {
					t.Errorf("one without a parent: %v", err)
				}
			})
			wg.Go(func() {
				if _, err := s.InsertGroup(resource.WithDryRun(t.Context()), iamtest.NewGroup(org, "taken")); !errors.Is(err,
					fault.AlreadyExists) {
					t.Errorf("a dry run with a name that is taken: %v", err)
				}
			})
		}
		wg.Wait()
		if n := len(dbtest.Events(t, s.DB)) - before; n != rounds {
			t.Errorf("%d events, want %d", n, rounds)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestWhatIsCreatedTogetherIsWhole checks that groups that share a commit have
// the same data as if each were created alone, at any depth.
func TestWhatIsCreatedTogetherIsWhole(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		parents := []resource.UID{iamtest.AddGroup(t, s.IAMStore, "", "org").UID}
		for d := range 5 {
			parents = append(parents, iamtest.AddGroup(t, s.IAMStore, parents[d], "folder").UID)
		}
		var all []resource.Group
		for i := range 120 {
			g := iamtest.NewGroup(parents[i%len(parents)], "n "+strconv.Itoa(i))
			g.Description, g.Verified = strings.Repeat("ä", i), i%2 == 0
			all = append(all, g)
		}
		var wg sync.WaitGroup
		for _, g := range all {
			wg.Go(func() {
				if _, err := s.InsertGroup(t.Context(), g); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, g := range all {
			if got, err := s.Group(t.Context(), g.UID); err != nil || got != g {
				t.Errorf("got %v, %v, want %v", got, err, g)
			}
			below := resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: g.UID.Parent()}, Name: g.Name}
			found, err := s.Groups(t.Context(), store.Reach{Under: parents[:1]}, below,
				page.Request{Size: 2, Order: page.Order{Field: "name"}})
			if err != nil || len(found.Items) != 1 || found.Items[0] != g {
				t.Errorf("below %s: %v, %v", g.UID.Parent(), found.Items, err)
			}
		}
		dbtest.WantExact(t, s.DB)
	})
}
