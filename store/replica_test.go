package store_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// A pair is two processes that share a database.
type pair struct {
	here, there *store.Store
	db          *sql.DB // for what nobody is told of
}

func newPair(t *testing.T) pair {
	url := storetest.Postgres(t)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return pair{storetest.Open(t, url), storetest.Open(t, url), db}
}

func (p pair) exec(t *testing.T, text string) {
	t.Helper()
	_, err := p.db.ExecContext(t.Context(), text)
	must(t, err)
}

// renew has a process say that it is there and take in what is new.
func renew(t *testing.T, s *store.Store) {
	t.Helper()
	newest, _, err := s.Renew(t.Context(), 0)
	must(t, err)
	_, _, err = s.Renew(t.Context(), newest)
	must(t, err)
}

// follow has a process do that until the test ends.
func follow(t *testing.T, s *store.Store) {
	t.Helper()
	renew(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		var newest int64
		for ctx.Err() == nil {
			var err error
			if newest, _, err = s.Renew(ctx, newest); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}

// describe changes the description of a group.
func describe(t *testing.T, s *store.Store, uid resource.UID, description string) {
	t.Helper()
	_, err := s.UpdateGroup(t.Context(), uid, func(g *resource.Group) error { g.Description = description; return nil })
	must(t, err)
}

func wantDescription(t *testing.T, s *store.Store, uid resource.UID, description string) {
	t.Helper()
	if got, err := s.Group(t.Context(), uid); err != nil || got.Description != description {
		t.Errorf("description = %q, %v, want %q", got.Description, err, description)
	}
}

// TestOneRemembersWhileAnotherChanges: a group and the place of a repo are
// remembered, and yet nobody reads what was before a change that has returned,
// whichever process has made it.
func TestOneRemembersWhileAnotherChanges(t *testing.T) {
	p := newPair(t)
	g := addGroup(t, p.here, "", "g")
	r := addRepo(t, p.here, g.UID, "app")
	follow(t, p.here)
	follow(t, p.there)
	wantRepo := func(uid resource.UID, names ...string) {
		t.Helper()
		if got, err := p.here.RepoAt(t.Context(), names); got != uid || uid == "" && !errors.Is(err, fault.NotFound) {
			t.Errorf("repo at %q = %q, %v, want %q", names, got, err, uid)
		}
	}
	for i := range 100 {
		describe(t, p.there, g.UID, strconv.Itoa(i))
		wantDescription(t, p.here, g.UID, strconv.Itoa(i))
	}
	p.exec(t, `UPDATE groups SET description = 'untold'`)
	wantDescription(t, p.here, g.UID, "99")

	wantRepo(r.UID, "g", "app")
	_, err := p.there.UpdateRepo(t.Context(), r.UID, func(r *resource.Repo) error { r.Name = "tool"; return nil })
	must(t, err)
	wantRepo("", "g", "app")
	wantRepo(r.UID, "g", "tool")
	must(t, p.there.DeleteRepo(t.Context(), r.UID))
	wantRepo("", "g", "tool")
	must(t, p.there.DeleteGroup(t.Context(), g.UID, ""))
	if _, err := p.here.Group(t.Context(), g.UID); !errors.Is(err, fault.NotFound) {
		t.Errorf("after the delete: %v, want NotFound", err)
	}
}

// TestTwoChangeAndReadTheSame has both processes do both at once.
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

// TestNobodyTrustsALostRecord: where the record of changes has a gap, or the
// database went back to an older copy, nothing is remembered.
func TestNobodyTrustsALostRecord(t *testing.T) {
	p := newPair(t)
	g := addGroup(t, p.here, "", "g")
	for name, text := range map[string]string{
		"a gap":  `UPDATE revision SET rev = rev + 1 WHERE id = 2`,
		"a past": `UPDATE revision SET rev = rev - 50 WHERE id = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			renew(t, p.here)
			wantDescription(t, p.here, g.UID, g.Description)
			g.Description = name
			p.exec(t, `UPDATE groups SET description = '`+name+`'`)
			p.exec(t, text)
			renew(t, p.here)
			wantDescription(t, p.here, g.UID, name)
		})
	}
}

// TestASilentProcessForgets: one that no longer says that it is there does not
// keep others from making a change, and does not answer from before it. The next
// change does not wait for it again.
func TestASilentProcessForgets(t *testing.T) {
	p := newPair(t)
	g := addGroup(t, p.here, "", "g")
	renew(t, p.here)
	wantDescription(t, p.here, g.UID, g.Description)
	start := time.Now()
	describe(t, p.there, g.UID, "changed")
	first := time.Since(start)
	wantDescription(t, p.here, g.UID, "changed")
	start = time.Now()
	describe(t, p.there, g.UID, "again")
	if second := time.Since(start); second > first/2 {
		t.Errorf("to wait for the silent took %s, and then %s", first, second)
	}
	wantDescription(t, p.here, g.UID, "again")
}

// TestNobodyStandsInTheWayOfARenewal: however busy the database is made, this
// process can say that it is there.
func TestNobodyStandsInTheWayOfARenewal(t *testing.T) {
	p := newPair(t)
	defer p.here.Occupy(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = p.here.ListenGrants(ctx, func() {}) }) // ends with ctx
	if _, _, err := p.here.Renew(ctx, 0); err != nil {
		t.Error(err)
	}
}

// TestOneThatLeavesIsNotWaitedFor: a process that ends says so.
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

// TestManyChangeGrants: whoever is told of a change reads from the database,
// also if there are more changes at once than connections.
func TestManyChangeGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		must(t, s.SetManagedRoles(t.Context(), []resource.Role{ownerRole}))
		org := addGroup(t, s, "", "org").UID
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
