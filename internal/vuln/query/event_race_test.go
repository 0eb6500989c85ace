package query_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// eachListener runs a test with several replicas. Only PostgreSQL supports several replicas, so the test does not run
// on SQLite.
func eachListener(t *testing.T, test func(t *testing.T, l *listener)) {
	t.Helper()
	storetest.EachURL(t, func(t *testing.T, url string) {
		l := newListener(t, url)
		if !l.Replicated() {
			t.Skip("this engine has only one replica")
		}
		test(t, l)
	})
}

// TestNewsComesAgain checks that if the packages of an image change while an event about the image is being written,
// the change is announced later.
func TestNewsComesAgain(t *testing.T) {
	t.Parallel()
	eachListener(t, func(t *testing.T, l *listener) {
		now := time.Now().UTC()
		repo := registry.Repo{UID: l.groups[0].NewChild(), Name: "app", CreateTime: now, UpdateTime: now}
		must(t, l.InsertRepo(t.Context(), repo))
		d := push(t, l.Store, repo, "a0")
		l.await(t)
		attach := func() (stop func()) {
			l.attach(t, repo, attachment{by: resource.NewRoot()}, d, fmt.Sprintf("s%d", l.rng.IntN(9)))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = l.replicas[1].indexer.Run(ctx) })
			return func() { cancel(); running.Wait() }
		}
		unread := func() bool {
			n, err := l.SBOMQueueLength(t.Context())
			must(t, err)
			return n > 0
		}
		stop := attach()
		waitFor(t, "the SBOM is read", func() bool { return !unread() })
		stop()
		numbers, err := l.NextChangedImages(t.Context(), 0, 10)
		must(t, err)
		if len(numbers) != 1 {
			t.Fatalf("%d images have changed, want 1", len(numbers))
		}
		must(t, l.Write(t.Context(), func(tx *store.Tx) error { // this transaction does the same as the matcher
			must(t, imagedb.In(tx).LockChunks(t.Context(), numbers))
			stop = attach()
			waitFor(t, "a transaction waits for the chunk", func() bool {
				var n int
				must(t, l.Row(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
					AND datname = current_database()`, nil, &n))
				return n > 0
			})
			return findingdb.In(tx).DropChangedImage(t.Context(), numbers[0])
		}))
		waitFor(t, "the other SBOM is read", func() bool { return !unread() })
		stop()
		if numbers, err = l.NextChangedImages(t.Context(), 0, 10); err != nil || len(numbers) != 1 {
			t.Errorf("%d images have changed, want 1 (%v)", len(numbers), err)
		}
	})
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	t.Log("waiting: " + what)
	testkit.Until(t, done)
}

// TestEventsWhenTheLeaseMoves checks that no event is lost or written twice while two matchers take the lease from each
// other in the middle of their work.
func TestEventsWhenTheLeaseMoves(t *testing.T) {
	t.Parallel()
	eachListener(t, func(t *testing.T, l *listener) {
		for _, r := range l.replicas {
			r.matcher.Single = 1000
		}
		for range 40 {
			l.pushOne(t)
		}
		l.await(t)
		one, two := l.replicas[0].matcher, l.replicas[1].matcher
		_, err := lease.Acquire(t.Context(), l.DB, "matches", one.Holder, time.Hour)
		must(t, err)
		for range 40 {
			for range 3 {
				l.importOne(t)
			}
			var running sync.WaitGroup
			for _, m := range []interface {
				Match(context.Context) (bool, error)
			}{one, two} {
				running.Go(func() {
					for range 5 {
						if _, err := m.Match(t.Context()); err != nil && !errors.Is(err, fault.Aborted) {
							t.Error(err)
						}
					}
				})
			}
			for n := range 6 {
				to := []string{one.Holder, two.Holder}[n%2]
				_, err := l.Exec(t.Context(), `UPDATE leases SET holder = $1 WHERE name = 'matches'`, to)
				must(t, err)
				time.Sleep(time.Duration(l.rng.IntN(10)) * time.Millisecond)
			}
			running.Wait()
			l.listen(t)
		}
		_, err = l.Exec(t.Context(), `DELETE FROM leases`)
		must(t, err)
		l.await(t)
		l.compare(t)
	})
}
