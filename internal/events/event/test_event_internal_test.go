package event

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestTestLimiter checks that one test of a subscription runs at a time, that the tests of an organization are limited,
// and that organizations do not affect each other.
func TestTestLimiter(t *testing.T) {
	var limiter testLimiter
	now := time.Now()
	org, other := resource.NewRoot(), resource.NewRoot()
	sub := org.NewChild()
	end, err := limiter.begin(sub, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := limiter.begin(sub, now); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("during a test: %v", err)
	}
	end()
	for range maxTests - 1 {
		end, err := limiter.begin(sub, now)
		if err != nil {
			t.Fatal(err)
		}
		end()
	}
	if _, err := limiter.begin(org.NewChild(), now); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("after %d tests: %v", maxTests, err)
	}
	if _, err := limiter.begin(other.NewChild(), now); err != nil {
		t.Errorf("another organization: %v", err)
	}
	if _, err := limiter.begin(sub, now.Add(testWindow)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	if len(limiter.begun) != 1 {
		t.Errorf("%d organizations are remembered, want 1", len(limiter.begun))
	}
}
