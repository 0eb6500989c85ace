package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestARelease prepares one as the section against does, and sends each of its
// requests.
func TestARelease(t *testing.T) {
	binary := (&bench{folder: t.TempDir()}).build(t.Context(), ".", program)
	eachEngine(t, func(t *testing.T, m *measurement) {
		v := m.release(t.Context(), "this version", "against_test", binary, m.newPlatform(t.Context()))
		if n := len(v.readers); n < 2000 {
			t.Errorf("there are %d bindings, and a few thousand are wanted", n)
		}
		for _, x := range tasks {
			do := x.of(v)
			for client := range clients {
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
		if used := v.processor(); used <= 0 {
			t.Errorf("the server has used %v of processor time", used)
		}
	})
}

// Without an earlier version there is nothing to measure, and the report says how
// to name one.
func TestAgainstNothing(t *testing.T) {
	b, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{}
	m := &measurement{bench: b, report: r}
	if err := m.run(t.Context(), againstEarlier); err != nil || len(r.rows) != 0 {
		t.Errorf("%d rows: %v", len(r.rows), err)
	}
	if len(r.notes) != 1 || !strings.Contains(r.notes[0], "-against PATH") {
		t.Errorf("the notes do not say how to ask for it: %q", r.notes)
	}
	if _, err := parse([]string{"-against", filepath.Join(t.TempDir(), "none")}, io.Discard); err == nil ||
		!strings.HasPrefix(err.Error(), "-against: ") {
		t.Errorf("a program that is not there: %v", err)
	}
}
