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

// TestYieldToWriters checks that after a task, no task runs for as long as that task
// took, and that a tenant with too many tasks is refused.
func TestYieldToWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := YieldToWriters()
		run := func(tenant string, d time.Duration) error {
			release, err := limiter.Acquire(t.Context(), resource.Tenant(tenant))
			if err == nil {
				time.Sleep(d)
				release()
			}
			return err
		}
		begun := time.Now()
		for _, tenant := range []string{"a", "b", "a"} {
			if err := run(tenant, 3*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 15*time.Second { // three tasks, and two pauses between them
			t.Errorf("three tasks of 3 s took %s, want 15s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := limiter.Acquire(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("during the rest: %v", err)
		}
		time.Sleep(3 * time.Second)
		const tasks = 16
		results := make(chan error)
		for range tasks {
			go func() { results <- run("c", time.Second) }()
		}
		refused := 0
		for range tasks {
			if err := <-results; errors.Is(err, fault.ResourceExhausted) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if want := tasks - limiter.limits.QueuedPerTenant; refused != want {
			t.Errorf("%d of %d are refused, want %d", refused, tasks, want)
		}
	})
}

// TestTenants checks that a tenant that uses all of its slots waits while other
// tenants run, that a wait ends with an error after Limits.Wait, and that the limiter
// keeps no state about tenants without tasks.
func TestTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 10 * time.Second
		limiter := New(Limits{Total: 5, PerTenant: 2, Wait: wait, Busy: Busy("too many")})
		acquire := func(tenant string) func() {
			release, err := limiter.Acquire(t.Context(), resource.Tenant(tenant))
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		releases := []func(){acquire("a"), acquire("a"), acquire("b")}
		begun := time.Now()
		if _, err := limiter.Acquire(t.Context(), "a"); !errors.Is(err, fault.ResourceExhausted) ||
			time.Since(begun) != wait {
			t.Errorf("one task too many of a tenant: %v after %s", err, time.Since(begun))
		}
		releases = append(releases, acquire("b"), acquire("c"))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := limiter.Acquire(canceled, "d"); !errors.Is(err, context.Canceled) {
			t.Errorf("one task too many in total, with a canceled context: %v", err)
		}
		got := make(chan func())
		go func() { got <- acquire("a") }()
		synctest.Wait()
		releases[0]()
		(<-got)()
		for _, release := range releases[1:] {
			release()
		}
		if len(limiter.tenants) != 0 || len(limiter.slots) != 0 {
			t.Errorf("%d tenants and %d slots are left", len(limiter.tenants), len(limiter.slots))
		}
	})
}
