package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// kernelPromises contains a test for each promise of the kernel.
var kernelPromises = map[string]func(t *testing.T, s *storetest.Store){
	"grant changes are complete or say so":  grantChanges,
	"watchers run before the write returns": watchers,
	"a setting is taken once":               settings,
}

func TestKernelPromises(t *testing.T) {
	for name, f := range kernelPromises {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				f(t, s)
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}

func grantChanges(t *testing.T, s *storetest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	start, err := s.Revision(t.Context())
	testkit.Must(t, err)
	i, r := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	b := iamtest.AddBinding(t, s.IAMStore, org.UID, i.UID, r.UID)
	_, err = s.UpdateBinding(t.Context(), b.UID,
		func(b *resource.RoleBinding) error { b.Identity = iamtest.Alice; return nil })
	testkit.Must(t, err)
	_, err = store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Description = "d"
		return nil
	})
	testkit.Must(t, err)
	want := []store.GrantChange{
		{Revision: start + 1, Role: r.UID}, {Revision: start + 2, Identity: i.UID},
		{Revision: start + 3, Identity: i.UID}, {Revision: start + 4, Identity: iamtest.Alice},
	}
	got, complete, err := s.GrantChanges(t.Context(), start)
	testkit.Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" || !complete {
		t.Errorf("complete %v\n%s", complete, diff)
	}
	if now, err := s.Revision(t.Context()); err != nil || now != start+4 {
		t.Errorf("revision = %d, want %d", now, start+4)
	}
	if none, complete, err := s.GrantChanges(t.Context(), start+4); err != nil || len(none) != 0 || !complete {
		t.Errorf("after the last: %v, %v, %v", none, complete, err)
	}
	var grants []iamdb.Grant
	revision, err := s.Grants(t.Context(), func(g iamdb.Grant) { grants = append(grants, g) })
	testkit.Must(t, err)
	if diff := cmp.Diff([]iamdb.Grant{{Identity: iamtest.Alice, Group: org.UID, Role: r.UID}}, grants); diff != "" ||
		revision != start+4 {
		t.Errorf("revision %d\n%s", revision, diff)
	}
	testkit.Must(t, s.SkipChanges(t.Context(), store.ChangesKept+1500))
	if _, complete, err := s.GrantChanges(t.Context(), start); err != nil || complete {
		t.Errorf("pruned changes pass for complete (%v)", err)
	}
	last, err := s.Revision(t.Context())
	testkit.Must(t, err)
	kept, complete, err := s.GrantChanges(t.Context(), last-store.ChangesKept)
	testkit.Must(t, err)
	if len(kept) != store.ChangesKept || !complete {
		t.Errorf("%d changes kept, complete %v", len(kept), complete)
	}
}

func watchers(t *testing.T, s *storetest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	heard := int64(0)
	s.OnGrantChange(func(ctx context.Context, revision int64) {
		if now, err := s.Revision(ctx); err != nil || now < revision {
			t.Errorf("told of %d at revision %d (%v)", revision, now, err)
		}
		heard = revision // if this call comes too late, the race detector reports it
	})
	iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Alice, r.UID)
	now, err := s.Revision(t.Context())
	testkit.Must(t, err)
	if heard != now {
		t.Errorf("heard of %d, want %d", heard, now)
	}
	iamtest.AddGroup(t, s.IAMStore, org.UID, "g")
	_, err = s.InsertBindings(t.Context(), []resource.RoleBinding{iamtest.NewBinding(org.UID, iamtest.Alice, r.UID)})
	if err == nil || heard != now {
		t.Errorf("heard of %d after a failed write, want %d", heard, now)
	}
}

func settings(t *testing.T, s *storetest.Store) {
	ctx := t.Context()
	_, err := s.Setting(ctx, "a")
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "setting", Name: "a"})
	testkit.Must(t, s.SetSetting(ctx, "a", []byte("one")))
	testkit.Must(t, s.SetSetting(ctx, "a", []byte("two")))
	if v, err := s.Setting(ctx, "a"); err != nil || string(v) != "two" {
		t.Errorf("setting = %q, %v", v, err)
	}
	if taken, err := s.DeleteSettingIf(ctx, "a", []byte("one")); err != nil || taken {
		t.Errorf("another value was taken (%v)", err)
	}
	wins := make(chan bool, 8)
	var wg sync.WaitGroup
	for range cap(wins) {
		wg.Go(func() {
			taken, err := s.DeleteSettingIf(ctx, "a", []byte("two"))
			if err != nil {
				t.Error(err)
			}
			wins <- taken
		})
	}
	wg.Wait()
	close(wins)
	n := 0
	for won := range wins {
		if won {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d took the setting", n)
	}
	testkit.Must(t, s.SetSetting(ctx, "b", []byte("x")))
	testkit.Must(t, s.SetSetting(ctx, "b", nil))
	_, err = s.Setting(ctx, "b")
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "setting", Name: "b"})
}

// TestReopen checks that a store that is closed and opened again still has its
// data, and that opening it records no event and no revision.
func TestReopen(t *testing.T) {
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		db, err := store.Open(t.Context(), url)
		testkit.Must(t, err)
		s := storetest.Combine(db)
		if has, err := s.HasOrganizations(t.Context()); err != nil || has {
			t.Errorf("an empty store has organizations (%v)", err)
		}
		org, b := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		i := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i")
		testkit.Must(t, s.SetSetting(t.Context(), "a", []byte("b")))
		want := dbtest.Events(t, s.DB)
		revision, err := s.Revision(t.Context())
		testkit.Must(t, err)
		testkit.Must(t, s.Close())
		s = storetest.Open(t, url)
		testkit.Must(t, s.Ping(t.Context()))
		testkit.WantSame(t, s.Group, org.UID, org)
		testkit.WantSame(t, s.Identity, i.UID, i)
		_, err = s.Binding(t.Context(), b.UID)
		testkit.Must(t, err)
		if v, err := s.Setting(t.Context(), "a"); err != nil || string(v) != "b" {
			t.Errorf("setting = %q, %v", v, err)
		}
		if diff := cmp.Diff(want, dbtest.Events(t, s.DB)); diff != "" {
			t.Error(diff)
		}
		if now, err := s.Revision(t.Context()); err != nil || now != revision {
			t.Errorf("revision = %d, want %d (%v)", now, revision, err)
		}
		if has, err := s.HasOrganizations(t.Context()); err != nil || !has {
			t.Errorf("the organization is not seen (%v)", err)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestNewerSchema opens a database that a later version has migrated. It checks
// that Open succeeds if the table schema_needs allows it, and otherwise returns
// an error that names the schema.
func TestNewerSchema(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), url)
		testkit.Must(t, err)
		testkit.Must(t, s.Close())
		driver := "sqlite"
		if strings.Contains(url, "://") {
			driver = "pgx"
		}
		db, err := sql.Open(driver, url)
		testkit.Must(t, err)
		defer db.Close()
		exec := func(text string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), text)
			testkit.Must(t, err)
		}
		exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
		exec(`ALTER TABLE groups ADD COLUMN later TEXT NOT NULL DEFAULT ''`)
		s, err = store.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("what a later version has added: %v", err)
		}
		iamtest.AddGroup(t, storetest.Combine(s).IAMStore, "", "by the version before")
		testkit.Must(t, s.Close())
		exec(`UPDATE schema_needs SET version = 9999`)
		s, err = store.Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "9999") || errors.Is(err, fault.Unavailable) {
			t.Errorf("opened: error = %v, want one that names the schema", err)
		}
	})
}

// TestListenGrants checks that ListenGrants of one store calls its function after another store has
// changed grants.
func TestListenGrants(t *testing.T) {
	address := storetest.Postgres(t)
	one, two := storetest.Open(t, address), storetest.Open(t, address)
	ctx, stop := context.WithCancel(t.Context())
	heard, done := make(chan struct{}, 1), make(chan error)
	go func() {
		done <- two.ListenGrants(ctx, func() {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	org := iamtest.AddGroup(t, one.IAMStore, "", "org")
	for n := 0; len(heard) == 0; n++ { // until the other store listens, changes have no effect
		iamtest.AddRole(t, one.IAMStore, org.UID, fmt.Sprintf("r%d", n))
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	testkit.Must(t, two.Ping(t.Context()))
}

// TestListenAlone checks that ListenGrants on SQLite never calls its function and returns when its
// context ends.
func TestListenAlone(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.ListenGrants(ctx, func() { t.Error("heard something") }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// TestDriftsWhileWriting checks that Drifts sees one state of the database
// while others write, so that an operator may call it at any time.
func TestDriftsWhileWriting(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						g := iamtest.NewGroup(org, "")
						g.Name = string(g.UID)
						_, err := s.InsertGroup(t.Context(), g)
						if err := errors.Join(err, s.DeleteGroup(t.Context(), g.UID, "")); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for range 20 {
			drifts, err := s.Drifts(t.Context())
			testkit.Must(t, err)
			if len(drifts) > 0 {
				t.Errorf("a comparison made while groups were written: %+v", drifts[0])
				break
			}
		}
		close(done)
		wg.Wait()
	})
}
