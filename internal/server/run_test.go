package server_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestSplitCommand: a command gets only its own flags. For example, keys rotate has no
// dry run, so --dry-run must not be accepted and ignored.
func TestSplitCommand(t *testing.T) {
	for _, tt := range []struct{ words, flags, command, settings string }{
		{"gc", "--dry-run --data-dir d", "gc dry-run", "--data-dir d"},
		{"keys rotate", "--dry-run", "keys rotate", "--dry-run"},
		{
			"restore place", "--at 2026-01-02T03:04:05Z --verify --dev", "restore place at=2026-01-02T03:04:05Z verify",
			"--dev",
		},
		{"backup place", "--keep 3 --dev", "backup place keep=3", "--dev"},
		{"restore place", "--keep 3", "restore place", "--keep 3"},
		{"restore place", "--at=noon", "restore place at=noon", ""},
		{"restore place", "--at", "restore place", "--at"},
		{"restore place", "--verify=yes --attic", "restore place", "--verify=yes --attic"},
		{"backup place", "--verify", "backup place", "--verify"},
		{"doctor", "--json", "doctor json", ""},
	} {
		command, settings := server.SplitCommand(strings.Fields(tt.words), strings.Fields(tt.flags))
		if got := strings.Join(command, " "); got != tt.command || strings.Join(settings, " ") != tt.settings {
			t.Errorf("%s %s: %q and %q", tt.words, tt.flags, got, settings)
		}
	}
}
