package iamdb_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/access/namedb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// renameGroup gives a group another name.
func renameGroup(ctx context.Context, s *iamtest.Store, uid resource.UID, name string) error {
	_, err := store.Edit(ctx, uid, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Name = name
		return nil
	})
	return err
}

// wantNameInUse checks that nobody can create an organization with a name, or give the name to another organization,
// and that the errors are the same as for a name in use.
func wantNameInUse(ctx context.Context, t *testing.T, s *iamtest.Store, name string, other resource.Group) {
	t.Helper()
	for what, got := range map[string]func(name string) error{
		"create": func(name string) error { _, err := s.InsertGroup(ctx, iamtest.NewGroup("", name)); return err },
		"rename": func(name string) error { return renameGroup(ctx, s, other.UID, name) },
	} {
		err := got(name)
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: name})
		if f := fault.From(err); f.Message != fault.Exists("group", name).Message || len(f.Fields)+len(f.Metadata) > 0 {
			t.Errorf("%s: the error differs from the error of a name in use: %+v", what, f)
		}
	}
}

// TestAttackPreviousName checks that nobody can take the previous name of a renamed or deleted organization, and with
// it the addresses of its images.
func TestAttackPreviousName(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Alice})
		thief := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Bob})
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		acme, gone := iamtest.AddGroup(t, s.IAMStore, "", "acme"), iamtest.AddGroup(t, s.IAMStore, "", "gone")
		testkit.Must(t, renameGroup(ctx, s, acme.UID, "acme2"))
		testkit.Must(t, renameGroup(ctx, s, acme.UID, "acme3"))
		testkit.Must(t, renameGroup(ctx, s, gone.UID, "gone2"))
		testkit.Must(t, s.DeleteGroup(ctx, gone.UID, iamtest.Alice))
		for _, name := range []string{"acme", "acme2", "gone", "gone2"} {
			wantNameInUse(thief, t, s, name, other)
		}
		wantNameInUse(t.Context(), t, s, "gone", other) // a write without an actor

		now := s.Now
		s.Now = func() time.Time { return now().Add(s.KeepNames + time.Minute) }
		_, err := s.InsertGroup(thief, iamtest.NewGroup("", "acme"))
		testkit.Must(t, err)
		testkit.Must(t, renameGroup(thief, s, other.UID, "gone2"))
	})
}

// TestReservedNames checks who may use a reserved name, and that only names of organizations are reserved.
func TestReservedNames(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Alice})
		acme, gone := iamtest.AddGroup(t, s.IAMStore, "", "acme"), iamtest.AddGroup(t, s.IAMStore, "", "gone")
		testkit.Must(t, renameGroup(ctx, s, acme.UID, "acme2"))
		testkit.Must(t, renameGroup(ctx, s, acme.UID, "acme")) // the organization takes its name back
		wantNameInUse(ctx, t, s, "acme2", gone)
		testkit.Must(t, s.DeleteGroup(ctx, gone.UID, iamtest.Alice))
		_, err := s.InsertGroup(ctx, iamtest.NewGroup("", "gone")) // the person who deleted it creates it again
		testkit.Must(t, err)

		folder := iamtest.AddGroup(t, s.IAMStore, acme.UID, "folder")
		testkit.Must(t, renameGroup(ctx, s, folder.UID, "folder2"))
		iamtest.AddGroup(t, s.IAMStore, acme.UID, "folder") // inside an organization, names are not reserved

		testkit.Must(t, namedb.New(s.DB).Release(ctx, "acme2"))
		testkit.WantFault(t, namedb.New(s.DB).Release(ctx, "acme2"), fault.NotFound, fault.Resource{})
		iamtest.AddGroup(t, s.IAMStore, "", "acme2")

		for i := range 20 {
			err = renameGroup(ctx, s, acme.UID, "name"+string(rune('a'+i)))
			if err != nil {
				break
			}
		}
		testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		testkit.Must(t, renameGroup(ctx, s, acme.UID, "namea")) // a name that it has reserved

		s.KeepNames = -1
		never := iamtest.AddGroup(t, s.IAMStore, "", "never")
		testkit.Must(t, renameGroup(ctx, s, never.UID, "never2"))
		iamtest.AddGroup(t, s.IAMStore, "", "never")
		s.KeepNames = time.Hour
		testkit.Must(t, namedb.New(s.DB).Prune(ctx, s.Time().Add(10000*time.Hour)))
		iamtest.AddGroup(t, s.IAMStore, "", "nameb")
	})
}

// TestAttackPreviousNameRace checks that nobody can create an organization with the name of another organization
// while that organization is renamed or deleted on another replica.
func TestAttackPreviousNameRace(t *testing.T) {
	race := func(t *testing.T, here, there *iamtest.Store) {
		for i := range 40 {
			name := "race" + string(rune('a'+i/26)) + string(rune('a'+i%26))
			org := iamtest.AddGroup(t, here.IAMStore, "", name)
			var wg sync.WaitGroup
			wg.Go(func() {
				if i%2 == 0 {
					testkit.Must(t, renameGroup(t.Context(), here, org.UID, name+"-new"))
				} else {
					testkit.Must(t, here.DeleteGroup(t.Context(), org.UID, iamtest.Alice))
				}
			})
			for range 2 {
				wg.Go(func() {
					for range 8 {
						_, err := there.InsertGroup(t.Context(), iamtest.NewGroup("", name))
						if !errors.Is(err, fault.AlreadyExists) {
							t.Errorf("%s was taken: %v", name, err)
						}
					}
				})
			}
			wg.Wait()
		}
	}
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) { race(t, s, s) })
	t.Run("replicas", func(t *testing.T) {
		url := dbtest.Postgres(t)
		here, there := iamtest.Open(t, url), iamtest.Open(t, url)
		dbtest.Follow(t, here.DB)
		dbtest.Follow(t, there.DB)
		race(t, here, there)
	})
}
