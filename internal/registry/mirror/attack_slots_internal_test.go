package mirror

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestAttackUpstreamSlots: an owner creates 35 organizations, and each of them starts 8 slow downloads. They share the
// slots of the organization that pays for them, and another organization gets its slots immediately.
func TestAttackUpstreamSlots(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		payer := iamtest.AddGroup(t, s.IAMStore, "", "payer").UID
		orgs := []resource.UID{payer}
		for i := range 34 {
			org := iamtest.AddGroup(t, s.IAMStore, "", fmt.Sprint("paid-", i)).UID
			testkit.Must(t, s.SetPayer(t.Context(), org, payer))
			orgs = append(orgs, org)
		}
		l := newLimiter(s.Tenant)
		tries, finish := len(orgs)*maxFetchesOfOne, make(chan struct{})
		var running, most atomic.Int32
		var downloads sync.WaitGroup
		for i := range tries {
			downloads.Go(func() {
				end, err := l.take(t.Context(), orgs[i%len(orgs)])
				if err != nil {
					t.Error(err)
					return
				}
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				<-finish
				running.Add(-1)
				end()
			})
		}
		testkit.Until(t, func() bool { return running.Load() >= maxFetchesOfOne })
		other := iamtest.AddGroup(t, s.IAMStore, "", "other").UID
		for range maxFetchesOfOne {
			if _, err := l.take(t.Context(), other); err != nil {
				t.Fatalf("another organization gets no slot: %v", err)
			}
		}
		close(finish)
		downloads.Wait()
		if n := most.Load(); n != maxFetchesOfOne {
			t.Errorf("the organizations of one payer have %d slots at a time, want %d", n, maxFetchesOfOne)
		}
	})
}
