package store_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A pair is two processes that share a database.
type pair struct {
	here, there *storetest.Store
	db          *sql.DB // connection for changes that notify nobody
	url         string
}

func newPair(t *testing.T) pair {
	url := storetest.Postgres(t)
	db, err := sql.Open("pgx", url)
	testkit.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return pair{storetest.Open(t, url), storetest.Open(t, url), db, url}
}

func (p pair) exec(t *testing.T, text string) {
	t.Helper()
	_, err := p.db.ExecContext(t.Context(), text)
	testkit.Must(t, err)
}

// rename changes the name of a repo.
func rename(t *testing.T, s *storetest.Store, uid resource.UID, name string) {
	t.Helper()
	_, err := store.Edit(t.Context(), uid, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
		r.Name = name
		return nil
	})
	testkit.Must(t, err)
}

// wantRepo checks that a path leads to the repo uid, or to no repo if uid is "".
func wantRepo(t *testing.T, s *storetest.Store, uid resource.UID, names ...string) {
	t.Helper()
	if got, err := s.RepoAt(t.Context(), names); got != uid || uid == "" && !errors.Is(err, fault.NotFound) {
		t.Errorf("repo at %q = %q, %v, want %q", names, got, err, uid)
	}
}

func wantDescription(t *testing.T, s *storetest.Store, uid resource.UID, description string) {
	t.Helper()
	if got, err := s.Group(t.Context(), uid); err != nil || got.Description != description {
		t.Errorf("description = %q, %v, want %q", got.Description, err, description)
	}
}

// TestOneRemembersWhileAnotherChanges checks the cache of repo paths: after a rename, move
// or delete has returned in one process, the other process no longer finds the old path.
func TestOneRemembersWhileAnotherChanges(t *testing.T) {
	p := newPair(t)
	g := iamtest.AddGroup(t, p.here.IAMStore, "", "g")
	r := registrytest.AddRepo(t, p.here.RegistryStore, g.UID, "0")
	dbtest.Follow(t, p.here.DB)
	dbtest.Follow(t, p.there.DB)
	for i := range 100 {
		wantRepo(t, p.here, r.UID, "g", strconv.Itoa(i))
		rename(t, p.there, r.UID, strconv.Itoa(i+1))
		wantRepo(t, p.here, "", "g", strconv.Itoa(i))
	}
	wantRepo(t, p.here, r.UID, "g", "100")
	p.exec(t, `UPDATE repos SET name = 'untold'`)
	wantRepo(t, p.here, r.UID, "g", "100") // from the cache
	p.exec(t, `UPDATE repos SET name = '100'`)

	_, err := store.Edit(t.Context(), g.UID, p.there.Group, p.there.UpdateGroup, func(g *resource.Group) error {
		g.Name = "firm"
		return nil
	})
	testkit.Must(t, err)
	wantRepo(t, p.here, "", "g", "100")
	wantRepo(t, p.here, r.UID, "firm", "100")
	testkit.Must(t, p.there.DeleteRepo(t.Context(), r.UID))
	wantRepo(t, p.here, "", "firm", "100")
	testkit.Must(t, p.there.DeleteGroup(t.Context(), g.UID, ""))
	if _, err := p.here.Group(t.Context(), g.UID); !errors.Is(err, fault.NotFound) {
		t.Errorf("after the delete: %v, want NotFound", err)
	}
}

// TestTwoChangeAndReadTheSame lets two processes change and read a group concurrently, and checks
// that no change is lost and that each reads the changes of the other.
func TestTwoChangeAndReadTheSame(t *testing.T) {
	p := newPair(t)
	g := iamtest.AddGroup(t, p.here.IAMStore, "", "g")
	dbtest.Follow(t, p.here.DB)
	dbtest.Follow(t, p.there.DB)
	var wg sync.WaitGroup
	for range 3 {
		for _, s := range []pair{p, {here: p.there, there: p.here}} {
			wg.Go(func() {
				for range 20 {
					if err := raise(t, s.here, s.there, g.UID); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	wantDescription(t, p.here, g.UID, "120")
	wantDescription(t, p.there, g.UID, "120")
}

// TestNobodyTrustsALostRecord checks that the cache is cleared if the recorded
// changes have a gap, or if the database was replaced by an older copy.
func TestNobodyTrustsALostRecord(t *testing.T) {
	p := newPair(t)
	g := iamtest.AddGroup(t, p.here.IAMStore, "", "g")
	r := registrytest.AddRepo(t, p.here.RegistryStore, g.UID, "app")
	was := "app"
	for name, text := range map[string]string{
		"a gap":  `UPDATE revision SET rev = rev + 1 WHERE id = 1`,
		"a past": `UPDATE revision SET rev = rev - 50 WHERE id = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Renew(t, p.here.DB)
			wantRepo(t, p.here, r.UID, "g", was)
			p.exec(t, `UPDATE repos SET name = '`+name+`'`)
			wantRepo(t, p.here, r.UID, "g", was)
			p.exec(t, text)
			dbtest.Renew(t, p.here.DB)
			wantRepo(t, p.here, "", "g", was)
			was = name
		})
	}
}

// TestCachesAreClearedBeforeTheyAreAnnounced: a process may have read a change to
// grants before it clears its caches. The test checks that its heartbeat reports
// the change as applied only after the caches were cleared.
func TestCachesAreClearedBeforeTheyAreAnnounced(t *testing.T) {
	p := newPair(t)
	dbtest.Renew(t, p.here.DB)
	newest, err := p.here.Renew(t.Context(), replica.Position{})
	testkit.Must(t, err)
	p.exec(t, `UPDATE revision SET rev = rev + 1 WHERE id = 1`)
	newest.Revision++
	var announced []int64 // the revisions in the heartbeat at the moments when the caches were cleared
	p.here.OnRevision(func() {
		var at int64
		testkit.Must(t, p.db.QueryRowContext(t.Context(), `SELECT max(grants_at) FROM replicas`).Scan(&at))
		announced = append(announced, at)
	})
	_, err = p.here.Renew(t.Context(), newest)
	testkit.Must(t, err)
	if len(announced) == 0 || announced[0] >= newest.Revision {
		t.Errorf("when the caches were cleared for %d, it had announced %v", newest.Revision, announced)
	}
}

// quickest returns how long do takes. It repeats slow calls and returns the shortest time, because
// a machine may be slow for a moment.
func quickest(do func()) time.Duration {
	least := time.Hour
	for range 10 {
		start := time.Now()
		do()
		if least = min(least, time.Since(start)); least < 100*time.Millisecond {
			break
		}
	}
	return least
}

// TestASilentProcessForgets: a process no longer writes heartbeats, and another
// process makes a change. The test checks that the change succeeds, that the
// silent process does not answer from its old cache, and that the next change
// does not wait for it again.
func TestASilentProcessForgets(t *testing.T) {
	p := newPair(t)
	g := iamtest.AddGroup(t, p.here.IAMStore, "", "g")
	r := registrytest.AddRepo(t, p.here.RegistryStore, g.UID, "app")
	dbtest.Renew(t, p.here.DB)
	wantRepo(t, p.here, r.UID, "g", "app")
	start := time.Now()
	rename(t, p.there, r.UID, "changed")
	first := time.Since(start)
	wantRepo(t, p.here, "", "g", "app")
	wantRepo(t, p.here, r.UID, "g", "changed")
	names := 0
	second := quickest(func() { names++; rename(t, p.there, r.UID, "again"+strconv.Itoa(names)) })
	if second > first/2 {
		t.Errorf("to wait for the silent took %s, and then %s", first, second)
	}
	wantRepo(t, p.here, "", "g", "changed")
}

// TestNobodyStandsInTheWayOfARenewal checks that a process can write its
// heartbeat even if all other connections are in use.
func TestNobodyStandsInTheWayOfARenewal(t *testing.T) {
	p := newPair(t)
	defer p.here.Occupy(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = p.here.ListenGrants(ctx, func() {}) }) // returns when ctx ends
	if _, err := p.here.Renew(ctx, replica.Position{}); err != nil {
		t.Error(err)
	}
}

// TestOneThatLeavesIsNotWaitedFor checks that a process that ends deletes its row, so that nobody
// waits for it.
func TestOneThatLeavesIsNotWaitedFor(t *testing.T) {
	p := newPair(t)
	dbtest.Renew(t, p.here.DB)
	testkit.Must(t, p.here.Close())
	var n int
	testkit.Must(t, p.db.QueryRowContext(t.Context(), `SELECT count(*) FROM replicas`).Scan(&n))
	if n != 0 {
		t.Errorf("%d replicas are left", n)
	}
}

// TestManyChangeGrants checks that the callback of a change can read from the database, even
// if there are more concurrent changes than connections.
func TestManyChangeGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{iamtest.OwnerRole}))
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		s.OnGrantChange(func(_ context.Context, revision int64) {
			if now, err := s.Revision(ctx); err != nil || now < revision {
				t.Errorf("told of %d at revision %d: %v", revision, now, err)
			}
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				b := resource.RoleBinding{UID: org.NewChild(), Identity: resource.NewRoot(), Role: iamtest.OwnerRole.UID}
				if _, err := s.InsertBindings(ctx, []resource.RoleBinding{b}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// TestOldestReplica checks that a process knows the version of the oldest process that shares the
// database. A process of version 0.1 writes heartbeats without the number of its migrations.
func TestOldestReplica(t *testing.T) {
	p := newPair(t)
	dbtest.Renew(t, p.here.DB)
	dbtest.Renew(t, p.there.DB)
	dbtest.Renew(t, p.here.DB)
	known, err := store.KnownSchema()
	testkit.Must(t, err)
	if got := p.here.OldestReplica(); got != known {
		t.Errorf("two processes of this version know the migrations up to %d, want %d", got, known)
	}
	p.exec(t, `INSERT INTO replicas (id, beat, renew_ms, grants_at) VALUES ('old', 1, 0, 0)`)
	dbtest.Renew(t, p.here.DB)
	if got := p.here.OldestReplica(); got != 100 {
		t.Errorf("with a process of version 0.1, all know the migrations up to %d, want 100", got)
	}
	p.exec(t, `DELETE FROM replicas WHERE id = 'old'`)
	dbtest.Renew(t, p.here.DB)
	if got := p.here.OldestReplica(); got != known {
		t.Errorf("after it has stopped, all know the migrations up to %d, want %d", got, known)
	}
}
