package advisories

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
)

// TestProgressEnds: the last line shows 100%, whatever the server has counted, and stays
// on the screen. Nothing is shown without a terminal, or if the import ends before the
// first line is due.
func TestProgressEnds(t *testing.T) {
	tests := map[string]struct {
		live, shows bool
		end         string // expected end of the output
	}{
		"on a terminal": {true, true, " 100%  7 records, "},
		"elsewhere":     {false, true, ""},
		"short":         {true, false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "err"))
			if err != nil {
				t.Fatal(err)
			}
			p := &progress{console: output.NewConsole(os.Stdin, os.Stdout, f), live: tt.live, total: 100, start: time.Now()}
			if tt.shows {
				p.show(40, 3)
				p.show(97, 7) // too early to be shown, because lines are shown at intervals
			}
			p.end()
			text, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\r")
			if last := lines[len(lines)-1]; !strings.Contains(last, tt.end) || (tt.end == "") != (last == "") {
				t.Errorf("printed %q, want the last to have %q", text, tt.end)
			}
			if tt.end != "" && !strings.HasSuffix(string(text), "\n") {
				t.Errorf("the output does not end the line: %q", text)
			}
		})
	}
}

func TestProgressLine(t *testing.T) {
	tests := map[string]struct {
		bytes, total, records int64
		took                  time.Duration
		want                  string
	}{
		"at the start": {0, 100, 0, time.Second, "[                        ]   0%  0 records, 0/s, ? left"},
		"half way":     {50, 100, 3000, 2 * time.Second, "[============            ]  50%  3000 records, 1500/s, 2s left"},
		"done":         {100, 100, 6000, 4 * time.Second, "[========================] 100%  6000 records, 1500/s, 0s left"},
		"empty":        {0, 0, 0, 0, "[========================] 100%  0 records, 0/s, 0s left"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := progressLine(tt.bytes, tt.total, tt.records, tt.took); got != tt.want {
				t.Errorf("line = %q, want %q", got, tt.want)
			}
		})
	}
}
