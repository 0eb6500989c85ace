package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// fill inserts groups until an insert fails, and returns how many it inserted.
func fill(t *testing.T, s *storetest.Store, parent resource.UID) (n int, err error) {
	t.Helper()
	for n = range 100_000 {
		g := iamtest.NewGroup(parent, fmt.Sprintf("g%d", n))
		g.Description = strings.Repeat("x", 4000)
		if _, err = s.InsertGroup(t.Context(), g); err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestFullDisk(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	s.Tamper(t, "PRAGMA max_page_count = 200")
	n, err := fill(t, s, org.UID)
	testkit.WantFault(t, err, fault.Unavailable, fault.Resource{})
	got, err := s.Groups(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, iamtest.ByUID)
	testkit.Must(t, err)
	if got.Total != int64(n)+1 {
		t.Errorf("%d groups, want %d", got.Total, n+1)
	}
	dbtest.WantExact(t, s.DB)
	before := len(dbtest.Events(t, s.DB))
	s.Tamper(t, "PRAGMA max_page_count = 100000")
	iamtest.AddGroup(t, s.IAMStore, org.UID, "there is room again")
	if after := len(dbtest.Events(t, s.DB)); after != before+1 {
		t.Errorf("%d events, want %d", after, before+1)
	}
	dbtest.WantExact(t, s.DB)
}

// TestMovedFile checks that a missing SQLite file is reported as an outage, and that no empty
// database is created in its place.
func TestMovedFile(t *testing.T) {
	path := storetest.SQLite(t)
	s := storetest.Open(t, path)
	i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
	testkit.Must(t, os.Rename(path, path+".away"))
	_, err := s.Identity(t.Context(), i.UID) // this read needs a new connection
	testkit.WantFault(t, err, fault.Unavailable, fault.Resource{})
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is another file: %v", err)
	}
	testkit.Must(t, os.Rename(path+".away", path))
	_, err = s.Identity(t.Context(), i.UID)
	testkit.Must(t, err)
}

func TestLockedFile(t *testing.T) {
	path := storetest.SQLite(t)
	s := storetest.Open(t, path)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	s.Tamper(t, "PRAGMA busy_timeout = 50")
	other, err := sql.Open("sqlite", "file:"+path)
	testkit.Must(t, err)
	defer other.Close()
	on, err := other.Conn(t.Context())
	testkit.Must(t, err)
	defer on.Close()
	_, err = on.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	testkit.Must(t, err)
	_, err = s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, "a"))
	testkit.WantFault(t, err, fault.Unavailable, fault.Resource{})
	if _, err := s.Group(t.Context(), org.UID); err != nil {
		t.Errorf("a read while the file is locked: %v", err)
	}
	_, err = on.ExecContext(t.Context(), "ROLLBACK")
	testkit.Must(t, err)
	iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
	dbtest.WantExact(t, s.DB)
}

// TestOneOfABatch runs several writes in one commit. One of them fails and one
// panics, each after it has changed something. The test checks that the other
// writes succeed.
func TestOneOfABatch(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	iamtest.AddGroup(t, s.IAMStore, org.UID, "taken")
	own := errors.New("mine")
	var writes []func() error
	for i := range 61 {
		writes = append(writes, func() error {
			_, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, fmt.Sprintf("g%d", i)))
			return err
		})
	}
	insert := func(name string, f func() error) func() error {
		return func() error { return s.WriteThen(t.Context(), iamtest.NewGroup(org.UID, name), f) }
	}
	writes = append(writes, insert("fails", func() error {
		return own
	}), insert("panics", func() error { panic("oh") }), insert("taken", nil))
	errs := s.Together(t.Context(), writes)
	for i, err := range errs[:61] {
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if !errors.Is(errs[61], own) || errs[62] == nil || !strings.Contains(errs[62].Error(), "panic") || errs[63] == nil {
		t.Errorf("errors = %v", errs[61:])
	}
	got, err := s.Groups(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, iamtest.ByUID)
	testkit.Must(t, err)
	if got.Total != 63 || len(got.Items) != 63 {
		t.Errorf("%d groups, total %d, want 63", len(got.Items), got.Total)
	}
	dbtest.WantExact(t, s.DB)
}

// TestPanic checks that a write that panics after it has changed something leaves nothing behind.
func TestPanic(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		func() {
			defer func() { _ = recover() }() // on PostgreSQL the panic reaches the caller, after the connection was released
			err := s.WriteThen(t.Context(), iamtest.NewGroup(org.UID, "a"), func() error { panic("oh") })
			if err == nil {
				t.Error("a write that panicked succeeded")
			}
		}()
		iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
		dbtest.WantExact(t, s.DB)
	})
}

func TestCanceled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 50 {
			if _, err := s.InsertGroup(ctx, iamtest.NewGroup(org.UID, fmt.Sprintf("g%d", i))); !errors.Is(err,
				context.Canceled) {
				t.Fatalf("write: %v", err)
			}
		}
		if _, err := s.Group(ctx, org.UID); !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
		dbtest.WantExact(t, s.DB)
		if n := len(dbtest.Events(t, s.DB)); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
	})
}

// TestCanceledInTheQueue cancels a write that waits in the queue. It checks
// that the write still runs to its end, and that its caller gets the result.
func TestCanceledInTheQueue(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	release := s.Hold(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	g := iamtest.NewGroup(org.UID, "a")
	done := make(chan error)
	go func() { _, err := s.InsertGroup(ctx, g); done <- err }()
	s.AwaitWaiting(1)
	cancel()
	release()
	testkit.Must(t, <-done)
	_, err := s.Group(t.Context(), g.UID)
	testkit.Must(t, err)
}

// TestCanceledBeforeTheQueue cancels a write that waits because the queue is full. It checks that
// the write returns context.Canceled.
func TestCanceledBeforeTheQueue(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	release := s.Hold(t.Context())
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, fmt.Sprintf("g%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	s.AwaitWaiting(64)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := s.InsertGroup(ctx, iamtest.NewGroup(org.UID, "late")); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	release()
	wg.Wait()
	dbtest.WantExact(t, s.DB)
}

// killed is a statement that ends the other sessions, and returns their number.
const killed = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid()`

// until repeats a query until its result is want.
func until(t *testing.T, on *pgx.Conn, query string, want int) {
	t.Helper()
	for got := -1; got != want; {
		testkit.Must(t, on.QueryRow(t.Context(), query).Scan(&got))
	}
}

// TestKilledSessions ends every session of the server while requests run. It checks that
// failed requests return Unavailable, that acknowledged writes exist, and that the store
// continues without being opened again.
func TestKilledSessions(t *testing.T) {
	const rounds = 5
	address := storetest.Postgres(t)
	s := storetest.Open(t, address)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	killer, err := pgx.Connect(t.Context(), address)
	testkit.Must(t, err)
	defer killer.Close(t.Context())
	var acknowledged, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, fmt.Sprintf("g%d of %d", n, w)))
				switch {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, fault.Unavailable):
					failed.Add(1)
				default:
					t.Errorf("a write: %v", err)
				}
				if _, err := s.Group(t.Context(), org.UID); err != nil && !errors.Is(err, fault.Unavailable) {
					t.Errorf("a read: %v", err)
				}
			}
		})
	}
	for range rounds {
		for enough := acknowledged.Load() + 50; acknowledged.Load() < enough; {
			if _, err := killer.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := killer.Exec(t.Context(), killed)
		testkit.Must(t, err)
	}
	stop()
	wg.Wait()
	until(t, killer, killed, 0)
	if _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID,
		"notices")); err != nil { // the first write after the last sessions were killed
		if !errors.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
		failed.Add(1)
	}
	iamtest.AddGroup(t, s.IAMStore, org.UID, "after")
	got, err := s.Groups(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, iamtest.ByUID)
	testkit.Must(t, err)
	if got.Total < acknowledged.Load() || got.Total > acknowledged.Load()+failed.Load()+2 {
		t.Errorf("%d groups after %d acknowledged and %d failed writes", got.Total, acknowledged.Load(), failed.Load())
	}
	t.Logf("%d acknowledged, %d failed", acknowledged.Load(), failed.Load())
	dbtest.WantExact(t, s.DB)
}

// TestDeadConnections kills every idle connection. It checks that only the first
// request fails, because its failure drops all idle connections.
func TestDeadConnections(t *testing.T) {
	address := storetest.Postgres(t)
	s := storetest.Open(t, address)
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	killer, err := pgx.Connect(t.Context(), address)
	testkit.Must(t, err)
	defer killer.Close(t.Context())
	locked, err := killer.Begin(t.Context())
	testkit.Must(t, err)
	_, err = locked.Exec(t.Context(), `LOCK TABLE groups`)
	testkit.Must(t, err)
	var wg sync.WaitGroup
	for range 10 { // concurrent reads, so that there are ten connections
		wg.Go(func() {
			if _, err := s.Groups(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{},
				iamtest.ByUID); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, killer, `SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
		WHERE NOT granted AND relation = 'groups'::regclass AND datname = current_database()`, 10)
	testkit.Must(t, locked.Rollback(t.Context()))
	wg.Wait()
	until(t, killer, killed, 0)
	if _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, "notices")); !errors.Is(err, fault.Unavailable) {
		t.Errorf("the first: %v", err)
	}
	for i := range 10 {
		iamtest.AddGroup(t, s.IAMStore, org.UID, fmt.Sprintf("after %d", i))
	}
	dbtest.WantExact(t, s.DB)
}

func TestSecondOpen(t *testing.T) {
	path := storetest.SQLite(t)
	s, err := store.Open(t.Context(), path)
	testkit.Must(t, err)
	if other, err := store.Open(t.Context(), path); err == nil {
		t.Errorf("two stores have one file open (closing it: %v)", other.Close())
	} else if !strings.Contains(err.Error(), "another holdfastd is using this database") {
		t.Errorf("error = %v", err)
	}
	testkit.Must(t, s.Close())
	storetest.Open(t, path)
}

func TestClosed(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.SQLite(t))
	testkit.Must(t, err)
	testkit.Must(t, s.Close())
	_, err = iamdb.New(s).InsertGroup(t.Context(), iamtest.NewGroup("", "a"))
	testkit.WantFault(t, err, fault.Unavailable, fault.Resource{})
}
