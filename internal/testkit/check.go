package testkit

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// patience is the longest time that Until waits. It only matters for a test that fails, so it is long enough for a
// busy machine.
const patience = 2 * time.Minute

// Complete reports whether HOLDFAST_TEST_ALL is set, as in make test-all and make race. Otherwise long tests run in a
// short version: tests of code above the stores on one engine, and random and repeated tests with fewer rounds.
func Complete() bool { return os.Getenv("HOLDFAST_TEST_ALL") != "" }

// Rounds returns the number of rounds of a random or repeated test: complete if Complete reports true, otherwise short.
func Rounds(short, complete int) int {
	if Complete() {
		return complete
	}
	return short
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Ignore returns the error of a call whose other result a test does not need.
func Ignore[T any](_ T, err error) error { return err }

// Until waits until done returns true. The test ends if that takes too long.
func Until(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not done after %v", patience)
		}
	}
}

// WantFault checks the code of an error, and the resource that the error names.
func WantFault(t testing.TB, err error, code fault.Code, about fault.Resource) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Fatalf("error = %v, want %s", err, code.Reason())
	}
	if about != (fault.Resource{}) && (f.Resource == nil || *f.Resource != about) {
		t.Fatalf("the error is about %v, want %v", f.Resource, about)
	}
}

// WantUnmet checks that a precondition failed, and the kind of the condition.
func WantUnmet(t testing.TB, err error, kind string) {
	t.Helper()
	WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
	if unmet := fault.From(err).Unmet; len(unmet) != 1 || unmet[0].Subject != kind {
		t.Errorf("unmet = %v, want %s", unmet, kind)
	}
}

// WantSame checks that get returns the value want for a resource.
func WantSame[T any](
	t testing.TB, get func(context.Context, resource.UID) (T, error), uid resource.UID, want T,
) {
	t.Helper()
	got, err := get(t.Context(), uid)
	Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
