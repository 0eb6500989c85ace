package turn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// TestTurns: after a turn nobody has one for as long as it took, and who asks too often is refused.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := New()
		take := func(tenant string, d time.Duration) error {
			end, err := turns.Take(t.Context(), resource.UID(tenant))
			if err == nil {
				time.Sleep(d)
				end()
			}
			return err
		}
		begun := time.Now()
		for _, tenant := range []string{"a", "b", "a"} {
			if err := take(tenant, 3*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 15*time.Second { // three turns, and two rests between them
			t.Errorf("three turns of 3 s took %s, want 15s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Take(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("within the rest: %v", err)
		}
		time.Sleep(3 * time.Second)
		results := make(chan error)
		for range 2 * maxWaiting {
			go func() { results <- take("c", time.Second) }()
		}
		refused := 0
		for range 2 * maxWaiting {
			if err := <-results; errors.Is(err, fault.ResourceExhausted) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if want := maxWaiting - 1; refused != want {
			t.Errorf("%d of %d are refused, want %d", refused, 2*maxWaiting, want)
		}
	})
}
