package testprogram_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// TestPrograms checks that each prepared program runs on this machine.
func TestPrograms(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string // text that the output must contain
	}{
		"node/bin/node": {[]string{"--version"}, "v2"},
		"versitygw":     {[]string{"--version"}, "Version"},
		"registry":      {[]string{"--version"}, "registry"},
		"crane":         {[]string{"--help"}, "crane"},
		"dex":           {[]string{"version"}, "Dex"},
		"promtool":      {[]string{"--version"}, "promtool"},
		"holdfastd":     {[]string{"--version"}, "holdfastd"},
		"holdfast":      {[]string{"--version"}, "holdfast"},
		// These two programs have no option that only prints. An unknown option makes them print
		// their usage.
		"browser-dex": {[]string{"-help"}, "-listen"},
		"conformance": {[]string{"-help"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), testprogram.Path(t, name), tt.args...)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatalf("does not start: %v", err)
			}
			if !strings.Contains(string(out), tt.says) {
				t.Errorf("%s does not contain %q:\n%s", strings.Join(cmd.Args[1:], " "), tt.says, out)
			}
		})
	}
	for _, name := range []string{"haproxy", "skopeo", "podman", "ctr", "containerd", "chromium"} {
		testprogram.Installed(t, name)
	}
	for _, name := range []string{"browser/node_modules/axe-core/axe.min.js", "oidc-provider/node_modules/oidc-provider"} {
		testprogram.Path(t, name)
	}
}

// download matches Go code that runs a program which may download something.
var download = regexp.MustCompile(`"(?:go", (?:"-C", \w+, )?"(?:tool|run|get|install|mod)|npm|npx|apt-get|apt)"`)

// TestNothingIsDownloaded checks that no test, and no package for tests, installs or downloads anything. A new
// tool belongs in scripts/prepare.
func TestNothingIsDownloaded(t *testing.T) {
	err := filepath.WalkDir(testprogram.Root(), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "node_modules" || name == "bin" || name == "gen" || name == ".git") {
			return filepath.SkipDir
		}
		inTest := strings.HasSuffix(name, "_test.go") || strings.HasSuffix(filepath.Base(filepath.Dir(path)), "test")
		if entry.IsDir() || !inTest || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "exec.Command") && download.MatchString(line) {
				t.Errorf("%s:%d downloads what it needs; let scripts/prepare do that", path, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
