package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestOrganizationBetweenEngines: a file with every kind is applied to an installation on
// SQLite. Its export is applied to a new installation on PostgreSQL, whose export is equal.
func TestOrganizationBetweenEngines(t *testing.T) {
	t.Setenv("HOLDFAST_TOKEN_STORE", "file")
	t.Setenv("HOLDFAST_CLIENT_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	t.Setenv("ORG_TEST_SECRET", "user:hush")
	first := start(t, server.Config{Database: storetest.SQLite(t)})
	exported := filepath.Join(t.TempDir(), "org.yaml")
	use(t, first)
	if code, out := command(t, "org", "apply", "-f", "testdata/organization.yaml", "--yes"); code != 0 {
		t.Fatalf("apply: exit code %d\n%s", code, out)
	}
	text := export(t, first)
	if strings.Contains(text, "hush") {
		t.Error("the export contains a secret")
	}
	if strings.Contains(text, ": []\n") {
		t.Errorf("a kind is not tested:\n%s", text)
	}
	second := start(t, server.Config{Database: storetest.Postgres(t)})
	if err := os.WriteFile(exported, []byte(strings.ReplaceAll(text, "OWNER", second.OwnerUID)), 0o600); err != nil {
		t.Fatal(err)
	}
	use(t, second)
	for _, want := range []int{2, 0} {
		if code, out := command(t, "org", "plan", "-f", exported); code != want {
			t.Fatalf("plan: exit code %d, want %d\n%s", code, want, out)
		}
		if code, out := command(t, "org", "apply", "-f", exported, "--yes"); code != 0 {
			t.Fatalf("apply: exit code %d\n%s", code, out)
		}
	}
	if diff := cmp.Diff(text, export(t, second)); diff != "" {
		t.Errorf("the second installation differs (-first +second):\n%s", diff)
	}
}

// use makes the commands of the test call a server.
func use(t *testing.T, dev devServer) {
	t.Setenv("HOLDFAST_API", dev.BaseURL)
	t.Setenv("HOLDFAST_TOKEN", dev.Token)
}

// export returns the export of the server that is in use. The owner of a development server
// has no e-mail address, and another UID on each server.
func export(t *testing.T, dev devServer) string {
	t.Helper()
	code, out := command(t, "org", "export", "dev")
	if code != 0 {
		t.Fatalf("export: exit code %d\n%s", code, out)
	}
	return strings.ReplaceAll(out, dev.OwnerUID, "OWNER")
}

// command runs a command in this process. It returns the exit code and standard output.
func command(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var files []*os.File
	for _, name := range []string{"in", "out", "err"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	code = runWith(context.WithoutCancel(t.Context()), args, files[0], files[1], files[2])
	text, err := os.ReadFile(files[1].Name())
	if err != nil {
		t.Fatal(err)
	}
	problems, err := os.ReadFile(files[2].Name())
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Logf("%v: %s", args, problems)
	}
	return code, string(text)
}
