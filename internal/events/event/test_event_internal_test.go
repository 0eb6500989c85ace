package event

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestTests: a subscription is tested once at a time, and an organization cannot test without
// end; what one does costs another nothing.
func TestTests(t *testing.T) {
	var all tests
	now := time.Now()
	org, other := resource.NewRoot(), resource.NewRoot()
	sub := org.NewChild()
	end, err := all.begin(sub, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.begin(sub, now); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("while it is tested: %v", err)
	}
	end()
	for range testsMost - 1 {
		end, err := all.begin(sub, now)
		if err != nil {
			t.Fatal(err)
		}
		end()
	}
	if _, err := all.begin(org.NewChild(), now); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("after %d tests: %v", testsMost, err)
	}
	if _, err := all.begin(other.NewChild(), now); err != nil {
		t.Errorf("another organization: %v", err)
	}
	if _, err := all.begin(sub, now.Add(testsEach)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	if len(all.begun) != 1 {
		t.Errorf("%d organizations are remembered, want 1", len(all.begun))
	}
}
