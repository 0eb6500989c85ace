package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

const readmeMost = 150 // maximum number of lines

// TestReadmeQuickStart follows the README, the first hour, and the pages about clients, budgets, findings, searches,
// access and syncs.
// It starts the server as `make run` does, and runs the blocks marked quickstart in a shell.
func TestReadmeQuickStart(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{testprogram.Holdfast(t), testprogram.Holdfastd(t), testprogram.Path(t, "crane")} {
		if err := os.Symlink(program, filepath.Join(bin, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range []string{
		"README.md", "docs/clients.md", "docs/budgets.md", "docs/findings.md", "docs/search.md", "docs/access-over-time.md",
		"docs/following.md", "docs/replication.md", "docs/reports.md", "docs/first-hour.md", "docs/organization-file.md",
	} {
		t.Run(page, func(t *testing.T) {
			script := readmeScript(readmeText(t, page))
			if script == "" {
				t.Fatalf("%s has no block marked ```sh quickstart", page)
			}
			dir := t.TempDir()
			if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
				t.Fatal(err)
			}
			readmeRun(t, dir, script)
		})
	}
}

// readmeRun runs a script in a shell, while a server runs. The script runs in dir, and the server stores its data
// there.
func readmeRun(t *testing.T, dir, script string) {
	t.Helper()
	p := procRun(t, readmeServer(t, dir))
	p.waitReady()
	// A quick start has no error handling, so that it is easy to read. The shell ends at the first command that fails.
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	shell.Dir = dir
	mine := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_") })
	// The commands must use their own settings and tokens, not the developer's.
	shell.Env = append(mine, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "HOLDFAST_TOKEN_STORE=file",
		"DOCKER_CONFIG="+filepath.Join(dir, "docker"))
	shell.Stdin = strings.NewReader("curl() { command curl --fail-with-body \"$@\"; }\n" +
		// The program holdfastd rejects unknown HOLDFAST_ settings.
		"holdfastd() { env -u HOLDFAST_TOKEN_STORE holdfastd \"$@\"; }\n" +
		"set -v\n" + script)
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	if err := shell.Run(); err != nil {
		t.Fatalf("the quick start ends with %v:\n%s", err, out.String())
	}
	p.stop()
}

// readmeServer returns the last command of `make run`, changed to use a program that is already built, a free port,
// and dir as the data folder.
func readmeServer(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	make := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../..", "-n", "run", "ARGS=")
	out, err := make.Output() // without stderr, because warnings by make are not part of the command
	if err != nil {
		t.Fatalf("make -n run: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	words := strings.Fields(lines[len(lines)-1])
	if words[0] != "bin/holdfastd" {
		t.Fatalf("the last command of make run is %q, want the server", words)
	}
	binary := testprogram.Holdfastd(t)
	// The cleanup ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, words[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_DATA_DIR=data"}
	return cmd
}

var readmeBlock = regexp.MustCompile("(?ms)^```sh quickstart\n(.*?)^```$")

// readmeScript returns the text of the blocks that are marked quickstart.
func readmeScript(readme string) string {
	var script strings.Builder
	for _, block := range readmeBlock.FindAllStringSubmatch(readme, -1) {
		script.WriteString(block[1])
	}
	return script.String()
}

func readmeText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	readmeMake   = regexp.MustCompile("(?m)(?:^|`)make ([a-z]+)")
	readmeTarget = regexp.MustCompile(`(?m)^([a-z]+):`)
)

// TestReadme checks that the README is short, and that the commands in it exist.
func TestReadme(t *testing.T) {
	readme := readmeText(t, "README.md")
	if n := strings.Count(readme, "\n"); n >= readmeMost {
		t.Errorf("the README has %d lines, want fewer than %d", n, readmeMost)
	}
	var targets []string
	for _, m := range readmeTarget.FindAllStringSubmatch(readmeText(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	named := readmeMake.FindAllStringSubmatch(readme, -1)
	if len(named) == 0 {
		t.Error("the README names no make target")
	}
	for _, m := range named {
		if !slices.Contains(targets, m[1]) {
			t.Errorf("the README names make %s, but the Makefile has no such target", m[1])
		}
	}
}
