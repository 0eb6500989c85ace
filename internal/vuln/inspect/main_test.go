package inspect_test

import (
	"os"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

const orphanName = "orphan"

// TestMain lets the test program run as the child.
func TestMain(m *testing.M) {
	if inspect.IsChild() {
		inspect.Child()
	}
	if inspect.IsProbe() {
		inspect.Probe(probe)
	}
	if os.Args[0] == orphanName {
		orphaned()
		return
	}
	os.Exit(m.Run())
}
