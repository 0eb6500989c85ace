package fairlimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestTurns: after a turn nobody has one for as long as it took, and who asks too often is refused.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := BesideWriters()
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
		const asked = 16
		results := make(chan error)
		for range asked {
			go func() { results <- take("c", time.Second) }()
		}
		refused := 0
		for range asked {
			if err := <-results; errors.Is(err, fault.ResourceExhausted) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if want := asked - turns.limits.Users; refused != want {
			t.Errorf("%d of %d are refused, want %d", refused, asked, want)
		}
	})
}

// TestTurnsOfOthers: a tenant that has all of its turns waits, and no other does; who waits too long is told so, and nobody is
// remembered.
func TestTurnsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 10 * time.Second
		turns := New(Limits{All: 5, Each: 2, Wait: wait, Busy: Busy("too many")})
		take := func(tenant string) func() {
			end, err := turns.Take(t.Context(), resource.UID(tenant))
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		ends := []func(){take("a"), take("a"), take("b")}
		begun := time.Now()
		if _, err := turns.Take(t.Context(), "a"); !errors.Is(err, fault.ResourceExhausted) || time.Since(begun) != wait {
			t.Errorf("one too many of a tenant: %v after %s", err, time.Since(begun))
		}
		ends = append(ends, take("b"), take("c"))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(gone, "d"); !errors.Is(err, context.Canceled) {
			t.Errorf("one too many of all, who has gone: %v", err)
		}
		got := make(chan func())
		go func() { got <- take("a") }()
		synctest.Wait()
		ends[0]()
		(<-got)()
		for _, end := range ends[1:] {
			end()
		}
		if len(turns.lanes) != 0 || len(turns.slots) != 0 {
			t.Errorf("%d tenants and %d turns are left", len(turns.lanes), len(turns.slots))
		}
	})
}
