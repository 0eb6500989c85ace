package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/test/bench/program"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// TestAgainstNothing checks that without an earlier version there is nothing to measure, and that the report says how
// to name one.
func TestAgainstNothing(t *testing.T) {
	b, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig.Report{}
	m := &rig.Measurement{Bench: b.Bench, Report: r}
	if err := m.Run(t.Context(), program.Against); err != nil || len(r.Rows) != 0 {
		t.Errorf("%d rows: %v", len(r.Rows), err)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "-against PATH") {
		t.Errorf("the notes do not say how to ask for it: %q", r.Notes)
	}
	if _, err := parse([]string{"-against", filepath.Join(t.TempDir(), "none")}, io.Discard); err == nil ||
		!strings.HasPrefix(err.Error(), "-against: ") {
		t.Errorf("a program that is not there: %v", err)
	}
}
