package server_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestTrustedRoot: the server does not start if the file of the setting trusted_root does
// not exist or is not a trusted root.
func TestTrustedRoot(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "trusted_root.json")
	if err := os.WriteFile(bad, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{bad: "is not a trusted root", bad + ".none": "no such file"} {
		_, err := server.New(t.Context(), server.Config{
			Listen: "127.0.0.1:0", DataDir: t.TempDir(), TrustedRoot: file, Stdout: io.Discard, Stderr: io.Discard,
		})
		if err == nil || !strings.Contains(err.Error(), "trusted_root: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
