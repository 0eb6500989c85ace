package store_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
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
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return pair{storetest.Open(t, url), storetest.Open(t, url), db, url}
}

func (p pair) exec(t *testing.T, text string) {
	t.Helper()
	_, err := p.db.ExecContext(t.Context(), text)
	must(t, err)
}

// renew makes a process write its heartbeat and apply new changes. If the
// history of the database has changed, that takes as long as a lease.
func renew(t *testing.T, s *storetest.Store) {
	t.Helper()
	newest, err := s.Renew(t.Context(), replica.Position{})
	for start := time.Now(); errors.Is(err, fault.Unavailable) && time.Since(start) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
		newest, err = s.Renew(t.Context(), replica.Position{})
	}
	must(t, err)
	_, err = s.Renew(t.Context(), newest)
	must(t, err)
}

// follow calls renew, and then renews the lease of a process continuously until the test ends.
func follow(t *testing.T, s *storetest.Store) {
	t.Helper()
	renew(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		var newest replica.Position
		for ctx.Err() == nil {
			var err error
			if newest, err = s.Renew(ctx, newest); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}

// rename changes the name of a repo.
func rename(t *testing.T, s *storetest.Store, uid resource.UID, name string) {
	t.Helper()
	_, err := store.Edit(t.Context(), uid, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
		r.Name = name
		return nil
	})
	must(t, err)
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
	g := addGroup(t, p.here, "", "g")
	r := addRepo(t, p.here, g.UID, "0")
	follow(t, p.here)
	follow(t, p.there)
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
	must(t, err)
	wantRepo(t, p.here, "", "g", "100")
	wantRepo(t, p.here, r.UID, "firm", "100")
	must(t, p.there.DeleteRepo(t.Context(), r.UID))
	wantRepo(t, p.here, "", "firm", "100")
	must(t, p.there.DeleteGroup(t.Context(), g.UID, ""))
	if _, err := p.here.Group(t.Context(), g.UID); !errors.Is(err, fault.NotFound) {
		t.Errorf("after the delete: %v, want NotFound", err)
	}
}

// TestTwoChangeAndReadTheSame lets two processes change and read a group concurrently, and checks
// that no change is lost and that each reads the changes of the other.
func TestTwoChangeAndReadTheSame(t *testing.T) {
	p := newPair(t)
	g := addGroup(t, p.here, "", "g")
	follow(t, p.here)
	follow(t, p.there)
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
	g := addGroup(t, p.here, "", "g")
	r := addRepo(t, p.here, g.UID, "app")
	was := "app"
	for name, text := range map[string]string{
		"a gap":  `UPDATE revision SET rev = rev + 1 WHERE id = 1`,
		"a past": `UPDATE revision SET rev = rev - 50 WHERE id = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			renew(t, p.here)
			wantRepo(t, p.here, r.UID, "g", was)
			p.exec(t, `UPDATE repos SET name = '`+name+`'`)
			wantRepo(t, p.here, r.UID, "g", was)
			p.exec(t, text)
			renew(t, p.here)
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
	renew(t, p.here)
	newest, err := p.here.Renew(t.Context(), replica.Position{})
	must(t, err)
	p.exec(t, `UPDATE revision SET rev = rev + 1 WHERE id = 1`)
	newest.Revision++
	var announced []int64 // the revisions in the heartbeat at the moments when the caches were cleared
	p.here.OnRevision(func() {
		var at int64
		must(t, p.db.QueryRowContext(t.Context(), `SELECT max(grants_at) FROM replicas`).Scan(&at))
		announced = append(announced, at)
	})
	_, err = p.here.Renew(t.Context(), newest)
	must(t, err)
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
	g := addGroup(t, p.here, "", "g")
	r := addRepo(t, p.here, g.UID, "app")
	renew(t, p.here)
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
	renew(t, p.here)
	must(t, p.here.Close())
	var n int
	must(t, p.db.QueryRowContext(t.Context(), `SELECT count(*) FROM replicas`).Scan(&n))
	if n != 0 {
		t.Errorf("%d replicas are left", n)
	}
}

// TestManyChangeGrants checks that the callback of a change can read from the database, even
// if there are more concurrent changes than connections.
func TestManyChangeGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		must(t, s.SetManagedRoles(t.Context(), []resource.Role{ownerRole}))
		org := addGroup(t, s, "", "org").UID
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
				b := resource.RoleBinding{UID: org.NewChild(), Identity: resource.NewRoot(), Role: ownerRole.UID}
				if _, err := s.InsertBindings(ctx, []resource.RoleBinding{b}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
