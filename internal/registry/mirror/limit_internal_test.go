package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestFetchesAreShared checks that an organization at its limit of fetches waits while other organizations do not,
// and that a wait longer than fetchWait ends with an error.
func TestFetchesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLimiter(func(_ context.Context, org resource.UID) resource.Tenant { return resource.Tenant(org) })
		var ends []func()
		for range maxFetchesOfOne {
			end, err := f.take(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		end, err := f.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		end()
		begun := time.Now()
		if _, err := f.take(t.Context(), "a"); !errors.Is(err, fault.ResourceExhausted) || time.Since(begun) != fetchWait {
			t.Errorf("one too many: %v after %s", err, time.Since(begun))
		}
		got := make(chan error)
		go func() {
			end, err := f.take(t.Context(), "a")
			if err == nil {
				end()
			}
			got <- err
		}()
		synctest.Wait()
		ends[0]()
		if err := <-got; err != nil {
			t.Errorf("the next: %v", err)
		}
		for _, end := range ends[1:] {
			end()
		}
	})
}
