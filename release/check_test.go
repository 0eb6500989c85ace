package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// advisoryOf returns the path of a file with an advisory about all versions of a module before 999.0.0.
func advisoryOf(t *testing.T, ecosystem, module string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "GO-2099-0001.json")
	text := `{"id": "GO-2099-0001", "modified": "2026-01-01T00:00:00Z", "affected": [{
		"package": {"ecosystem": "` + ecosystem + `", "name": "` + module + `"},
		"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "999.0.0"}]}]}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheck checks that a release with a finding is refused, that one without is allowed, and that missing knowledge is
// neither.
func TestCheck(t *testing.T) {
	m := released(t)
	for name, tt := range map[string]struct{ advisories, err, says string }{
		"a finding with a fix":     {advisoryOf(t, "Go", "modernc.org/sqlite"), "our rule refuses the image", "GO-2099-0001"},
		"another module":           {advisoryOf(t, "Go", "example.com/unused"), "", "checked: our rule"},
		"nothing that is compared": {advisoryOf(t, "npm", "left"), "its findings are unknown", ""},
		"no file":                  {filepath.Join(t.TempDir(), "none.zip"), "no such file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &builder{m.source, t.TempDir()}
			if err := os.Symlink(filepath.Join(m.work, "bin"), filepath.Join(b.work, "bin")); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := checkRelease(t.Context(), b, options{advisories: tt.advisories}, &out)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error = %v, want %q", err, tt.err)
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("it says %q, want %q", &out, tt.says)
			}
		})
	}
}

// TestCheckWithoutNetwork checks that a release that cannot be checked says so, and fails if the check is required.
func TestCheckWithoutNetwork(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	for _, address := range []string{gone.URL, "http://127.0.0.1:1/all.zip"} {
		var out bytes.Buffer
		err := checkRelease(t.Context(), &builder{work: t.TempDir()}, options{advisories: address}, &out)
		if err != nil || !strings.HasPrefix(out.String(), "NOT CHECKED") {
			t.Errorf("%s: %v, %q", address, err, &out)
		}
		err = checkRelease(t.Context(), &builder{work: t.TempDir()}, options{advisories: address, required: true}, &out)
		if !errors.Is(err, errNoAdvisories) {
			t.Errorf("%s, required: %v", address, err)
		}
	}
}
