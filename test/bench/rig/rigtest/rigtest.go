// Package rigtest runs tests of the benchmark on each engine.
package rigtest

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// EachEngine runs a test with a measurement on each available engine.
func EachEngine(t *testing.T, f func(t *testing.T, m *rig.Measurement)) {
	for _, name := range []string{"sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			if name == "postgres" && os.Getenv("HOLDFAST_TEST_POSTGRES") == "" {
				t.Skip("HOLDFAST_TEST_POSTGRES is not set: make test sets it")
			}
			b := &rig.Bench{Folder: t.TempDir(), Progress: io.Discard}
			e, err := b.OpenEngine(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := e.DropAll(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			m := &rig.Measurement{Bench: b, Report: &rig.Report{}, Engine: e}
			if err := m.Run(t.Context(), func(context.Context, *rig.Measurement) { f(t, m) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}
