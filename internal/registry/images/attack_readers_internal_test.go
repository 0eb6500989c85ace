package images

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestAttackDocumentReaders: a tenant sends 60 concurrent requests that each read documents for two seconds. A request
// of another tenant does not wait for them, and most requests of the attacker are refused or wait for each other.
func TestAttackDocumentReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, duration = 60, 2 * time.Second
		r := &Reader{readers: newReaderLimiter()}
		read := func(tenant string) error {
			ctx, answered := context.WithCancel(t.Context())
			defer answered()
			if err := r.Acquire(ctx, resource.Tenant(tenant)); err != nil {
				return err
			}
			time.Sleep(duration)
			return nil
		}
		results := make(chan error)
		for range requests {
			go func() { results <- read("attacker") }()
		}
		synctest.Wait()
		for range 3 {
			start := time.Now()
			if err := read("other"); err != nil || time.Since(start) != duration {
				t.Errorf("a request of another tenant: %v after %v, want %v", err, time.Since(start), duration)
			}
		}
		served := 0
		for range requests {
			if <-results == nil {
				served++
			}
		}
		if want := int(readerWait/duration) + 1; served == 0 || served > want {
			t.Errorf("%d requests of the attacker were served, want 1 to %d", served, want)
		}
	})
}
