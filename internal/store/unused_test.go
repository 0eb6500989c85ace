package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestInvitesExpire checks that an expired invite has one event, and another one if its
// expiry was moved and has passed again.
func TestInvitesExpire(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		role := addRole(t, s, org, "reader").UID
		add := func(in time.Duration) resource.GroupInvite {
			i := resource.GroupInvite{UID: org.NewChild(), Role: role, KeyID: "k", Digest: []byte("d"),
				ExpirationTime: time.Now().Add(in), CreateTime: epoch, UpdateTime: epoch}
			made, err := s.InsertInvite(t.Context(), i)
			must(t, err)
			return made
		}
		over := add(-time.Minute)
		add(time.Hour)
		told := func() (n int) {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if _, err := s.EndInvites(t.Context(), 10); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, e := range events(t, s) {
				if e.Type == resource.InviteExpired {
					n++
					if e.Subject != over.UID || e.Group != org {
						t.Errorf("the event is about %s in %s", e.Subject, e.Group)
					}
				}
			}
			return n
		}
		if n := told(); n != 1 {
			t.Errorf("told %d times", n)
		}
		again := over
		again.ExpirationTime = time.Now().Add(-time.Second)
		again, err := s.UpdateInvite(t.Context(), over, again)
		must(t, err)
		if n := told() + told(); n != 4 {
			t.Errorf("told %d times altogether after its end was put off, want 2", n/2)
		}
	})
}

// TestUnusedReports checks that a group with a subscription gets one report, no matter how many
// replicas there are, and another one a week later.
func TestUnusedReports(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		told := addGroup(t, s, "", "told").UID
		addGroup(t, s, "", "quiet")
		due := func(before time.Time) (n int) {
			all, err := s.DueReports(t.Context(), before)
			must(t, err)
			for _, uid := range all {
				if uid != told {
					t.Errorf("%s is due, which has no subscription", uid)
				}
			}
			return len(all)
		}
		addSubscription(t, s, told)
		addSubscription(t, s, told)
		if due(epoch) != 0 || due(epoch.Add(time.Hour)) != 1 {
			t.Error("it is due before the first subscription is old enough, or not afterwards")
		}
		for range 2 {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					_, err := s.Report(t.Context(), resource.UnusedReport{Group: told, Since: time.Hour}, epoch.Add(time.Hour))
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		n := 0
		for _, e := range events(t, s) {
			if e.Type == resource.AccessUnused && e.Group == told {
				n++
			}
		}
		if n != 1 || due(epoch.Add(time.Hour)) != 0 {
			t.Errorf("it was told %d times", n)
		}
		if due(time.Now().Add(time.Hour)) != 1 {
			t.Error("it is not due again")
		}
		done, err := s.Report(t.Context(), resource.UnusedReport{Group: resource.NewRoot()}, time.Now())
		if must(t, err); done {
			t.Error("a group that is not there was told")
		}
	})
}
