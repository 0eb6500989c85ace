package grantlog_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb/eventtest"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestUnusedReports checks that a group with a subscription gets one report, no matter how many
// replicas there are, and another one a week later.
func TestUnusedReports(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		told := iamtest.AddGroup(t, s.IAMStore, "", "told").UID
		iamtest.AddGroup(t, s.IAMStore, "", "quiet")
		due := func(before time.Time) (n int) {
			all, err := s.DueReports(t.Context(), before)
			testkit.Must(t, err)
			for _, uid := range all {
				if uid != told {
					t.Errorf("%s is due, which has no subscription", uid)
				}
			}
			return len(all)
		}
		eventtest.AddSubscription(t, eventdb.New(s.DB), told)
		eventtest.AddSubscription(t, eventdb.New(s.DB), told)
		if due(iamtest.Epoch) != 0 || due(iamtest.Epoch.Add(time.Hour)) != 1 {
			t.Error("it is due before the first subscription is old enough, or not afterwards")
		}
		for range 2 {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					_, err := s.Report(t.Context(), resource.UnusedReport{Group: told, Since: time.Hour}, iamtest.Epoch.Add(time.Hour))
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		n := 0
		for _, e := range dbtest.Events(t, s.DB) {
			if e.Type == resource.AccessUnused && e.Group == told {
				n++
			}
		}
		if n != 1 || due(iamtest.Epoch.Add(time.Hour)) != 0 {
			t.Errorf("it was told %d times", n)
		}
		if due(time.Now().Add(time.Hour)) != 1 {
			t.Error("it is not due again")
		}
		done, err := s.Report(t.Context(), resource.UnusedReport{Group: resource.NewRoot()}, time.Now())
		if testkit.Must(t, err); done {
			t.Error("a group that is not there was told")
		}
	})
}
