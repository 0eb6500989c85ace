package program

import (
	"testing"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
	"github.com/holdfast-dev/holdfast/test/bench/rig/rigtest"
)

// TestARelease prepares a release as the section against does, and sends each kind of request once.
func TestARelease(t *testing.T) {
	binary := (&rig.Bench{Folder: t.TempDir()}).Build(t.Context(), ".", rig.Program)
	rigtest.EachEngine(t, func(t *testing.T, m *rig.Measurement) {
		v := startRelease(t.Context(), m, "this version", "against_test", binary, m.NewPlatform(t.Context()))
		if n := len(v.readers); n < 2000 {
			t.Errorf("there are %d bindings, want a few thousand", n)
		}
		for _, x := range tasks {
			do := x.operation(v)
			for client := range rig.Clients {
				if err := do(t.Context(), client); err != nil {
					t.Errorf("%s: %v", x.what, err)
				}
			}
		}
		for i := range 3 {
			if err := v.refreshToken(t.Context(), i); err != nil {
				t.Errorf("refresh %d: %v", i, err)
			}
		}
		if used := v.ProcessorTime(); used <= 0 {
			t.Errorf("the server has used %v of processor time", used)
		}
	})
}
