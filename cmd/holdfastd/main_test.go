package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

func TestExitCodes(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := map[string]struct {
		args []string
		want int
	}{
		"version":           {[]string{"version"}, 0},
		"version, a flag":   {[]string{"--version"}, 0},
		"the manual page":   {[]string{"man"}, 0},
		"help":              {[]string{"--help"}, 0},
		"an unknown flag":   {[]string{"--no-such"}, 2},
		"a bad setting":     {[]string{"--log-level", "loud"}, 2},
		"an address in use": {[]string{"--data-dir", t.TempDir(), "--listen", taken.Addr().String()}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := run(t.Context(), tt.args); got != tt.want {
				t.Errorf("exit code = %d, want %d", got, tt.want)
			}
		})
	}
}

// TestCommandsCreateNothing: a command fails if there is no installation, and creates no
// files. Only the server creates an installation.
func TestCommandsCreateNothing(t *testing.T) {
	commands := []string{
		"keys list", "keys rotate", "keys drop x", "gc", "gc --dry-run", "organizations verify x", "organizations unverify x",
		"organizations create x --email a@b.example", "organizations payer x",
		"organizations release x",
		"providers trust 0123456789abcdef0123456789abcdef01234567/0123456789abcdef", "budgets show x",
		"budgets set x repos=1",
		"backup copies", "doctor", "doctor --json",
	}
	for name, prepare := range map[string]func(dir string) error{
		"an unrelated folder":  func(string) error { return nil },
		"an empty data folder": func(dir string) error { return os.Mkdir(filepath.Join(dir, "data"), 0o700) },
		"an empty database": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "data"), 0o700),
				os.WriteFile(filepath.Join(dir, "data", "holdfast.db"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			before := files(t, dir)
			for _, line := range commands {
				if got := run(t.Context(), strings.Fields(line)); got == 0 {
					t.Errorf("%s succeeded", line)
				}
				if after := files(t, dir); !slices.Equal(after, before) {
					t.Fatalf("%s changed the files from %[3]v to %[2]v", line, after, before)
				}
			}
		})
	}
}

// TestCommandsMakeNoKey: a command does not create a new key for a database whose key is
// missing.
func TestCommandsMakeNoKey(t *testing.T) {
	dir := t.TempDir()
	s, err := server.New(t.Context(),
		server.Config{DataDir: dir, Listen: "127.0.0.1:0", Stdout: t.Output(), Stderr: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "holdfast.key")); err != nil {
		t.Fatal(err)
	}
	if got := run(t.Context(), []string{"keys", "list", "--data-dir", dir}); got == 0 {
		t.Error("keys list succeeded")
	}
	if after := files(t, dir); slices.Contains(after, "holdfast.key") {
		t.Errorf("there is a new key: %v", after)
	}
}

// files returns the files in a folder and its subfolders.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		all = append(all, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRunsUntilStopped(t *testing.T) {
	var lc net.ListenConfig
	free, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--data-dir", t.TempDir(), "--listen", address}) }()
	for !isReady(t, address) {
		if len(code) > 0 {
			t.Fatalf("ended with code %d before it was ready", <-code)
		}
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code = %d, want 0", got)
	}
}

func isReady(t *testing.T, address string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestCountWords(t *testing.T) {
	const id = "-iyHXSu_z961rcA8Pgx9mh2YKt5OaZBWcYXYpgg123s"
	tests := map[string]int{
		"":                                    0,
		"keys rotate":                         2,
		"keys rotate --database x":            2,
		"gc --dry-run -data_dir x":            1,
		"keys drop " + id:                     3,
		"keys drop " + id + " --database x":   3,
		"keys drop -data_dir /var/lib/x":      2,
		"keys list " + id:                     2,
		"keys drop -" + id[1:42] + " -config": 2,
	}
	for line, want := range tests {
		if got := countWords(strings.Fields(line)); got != want {
			t.Errorf("%q: %d words, want %d", line, got, want)
		}
	}
}
