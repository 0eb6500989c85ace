package readbatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// batchingDB makes a Batcher batch its reads. It is not connected to a database.
var batchingDB = &store.DB{Engine: engine.Engine{Postgres: true}}

// TestBatcher checks that reads that arrive while a statement is running share the next
// statement, and that each gets its own result.
func TestBatcher(t *testing.T) {
	t.Parallel()
	const n = 10
	broken := errors.New("one of them cannot be asked")
	for name, tt := range map[string]struct {
		fails error
		want  error
	}{
		"together": {nil, nil}, "if they cannot be asked together": {broken, nil},
		"if the database is away": {fault.New(fault.Unavailable, "away"), fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			first, release := make(chan bool), make(chan bool)
			var mu sync.Mutex
			var alone, sizes []int
			g := New(batchingDB,
				func(_ context.Context, q int) (int, error) {
					if q == 0 {
						close(first)
						<-release
					}
					mu.Lock()
					defer mu.Unlock()
					alone = append(alone, q)
					return q * q, nil
				},
				func(_ context.Context, all []int) (answers []Result[int], _ error) {
					mu.Lock()
					defer mu.Unlock()
					sizes = append(sizes, len(all))
					for _, q := range all {
						answers = append(answers, Result[int]{Value: q * q})
					}
					return answers, tt.fails
				})
			g.delay = time.Hour
			var wg sync.WaitGroup
			ask := func(q int, want error) {
				wg.Go(func() {
					if got, err := g.Read(t.Context(), q); !errors.Is(err, want) || want == nil && got != q*q {
						t.Errorf("%d: %d, %v", q, got, err)
					}
				})
			}
			ask(0, nil)
			<-first
			for q := 1; q <= n; q++ {
				ask(q, tt.want)
			}
			testkit.Until(t, func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				return len(g.waiting) >= n
			})
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := g.Read(gone, n+1); !errors.Is(err, context.Canceled) {
				t.Errorf("somebody who has gone: %v", err)
			}
			close(release)
			wg.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(sizes) != 1 || sizes[0] != n+1 || errors.Is(tt.fails, broken) != (len(alone) > 1) {
				t.Errorf("asked %v together and %v alone", sizes, alone)
			}
		})
	}
}

// TestStuckStatement checks that a statement that does not end delays other reads only
// for a moment.
func TestStuckStatement(t *testing.T) {
	t.Parallel()
	stuck := make(chan bool)
	defer close(stuck)
	g := New(batchingDB,
		func(_ context.Context, q int) (int, error) {
			if q == 0 {
				<-stuck
			}
			return q, nil
		},
		func(_ context.Context, all []int) ([]Result[int], error) {
			return make([]Result[int], len(all)), nil
		})
	go func() { _, _ = g.Read(context.Background(), 0) }()
	var wg sync.WaitGroup
	for q := range 20 {
		wg.Go(func() {
			if _, err := g.Read(t.Context(), q+1); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait() // returns only if the other reads do not wait for the stuck statement
}
