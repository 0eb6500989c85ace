package images

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestVerifierTurns checks that each organization verifies one image at a time, and that an organization with a long
// verification does not block others.
func TestVerifierTurns(t *testing.T) {
	t.Parallel()
	v := newVerifier().turns
	end, err := v.Acquire(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Acquire(over, "busy"); err == nil {
		t.Error("who has gone has a turn")
	}
	var running sync.WaitGroup
	var at [2]atomic.Int32
	for i := range 100 {
		running.Go(func() {
			tenant, n := []resource.Tenant{"a", "b"}[i%2], &at[i%2]
			end, err := v.Acquire(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			if n.Add(1) != 1 {
				t.Errorf("%s has two turns", tenant)
			}
			n.Add(-1)
			end()
		})
	}
	running.Wait() // succeeds although the organization "busy" has not ended its turn
	end()
}
