package images

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// TestAcquireReader checks that a request that would exceed the limit of its tenant waits until another request ends,
// and fails after readerWait.
func TestAcquireReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reader{readers: newReaderLimiter()}
		first, answered := context.WithCancel(t.Context())
		if err := r.Acquire(first, "a"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := r.Acquire(t.Context(), "a")
		if !errors.Is(err, fault.ResourceExhausted) || time.Since(start) != readerWait ||
			fault.From(err).RetryIn == 0 {
			t.Errorf("one too many: %v after %v", err, time.Since(start))
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := r.Acquire(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that has gone: %v", err)
		}
		time.AfterFunc(time.Second, answered)
		last, cancel := context.WithCancel(t.Context())
		if err := r.Acquire(last, "a"); err != nil {
			t.Errorf("after an answer: %v", err)
		}
		cancel()
	})
}
