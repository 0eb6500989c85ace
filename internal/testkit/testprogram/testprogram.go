// Package testprogram finds the programs that tests run. scripts/prepare installs them, and builds them into bin/test,
// before a test starts, because a download or a build would count against the timeout of a test.
package testprogram

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Root returns the folder of the repository: the closest folder above the working directory that has scripts/prepare.
// A program that is built with -trimpath does not know the path of its source.
func Root() string {
	folder, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(folder, "scripts", "prepare")); err == nil {
			return folder
		}
		if filepath.Dir(folder) == folder {
			break
		}
		folder = filepath.Dir(folder)
	}
	return "."
}

// Path returns the path of a file or folder in bin/test, such as the program crane. The test fails if it is missing.
func Path(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(), "bin", "test", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run: make prepare", err)
	}
	return path
}

// Installed returns the path of a program that is installed on the machine, such as haproxy. The test fails if it is
// missing.
func Installed(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil { // Debian installs some programs in a folder that is not in the PATH of an ordinary user
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		t.Fatalf("%v; run: make prepare", err)
	}
	return path
}

var (
	holdfastd = sync.OnceValues(func() (string, error) { return own("holdfastd") })
	holdfast  = sync.OnceValues(func() (string, error) { return own("holdfast") })
	provider  = sync.OnceValues(func() (string, error) { return own("holdfast-credential-provider") })
)

// Holdfastd returns the path of the server program, built from this source tree.
func Holdfastd(t testing.TB) string {
	t.Helper()
	return must(t)(holdfastd())
}

// Holdfast returns the path of the command-line program, built from this source tree.
func Holdfast(t testing.TB) string {
	t.Helper()
	return must(t)(holdfast())
}

// CredentialProvider returns the path of the credential provider for kubelets, built from this source tree.
func CredentialProvider(t testing.TB) string {
	t.Helper()
	return must(t)(provider())
}

// Kube returns the path of holdfast-kube, the program for Kubernetes clusters, which scripts/prepare has built.
func Kube(t testing.TB) string {
	t.Helper()
	return Path(t, "holdfast-kube")
}

func must(t testing.TB) func(string, error) string {
	return func(path string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// own returns the path of one of our programs. `make test` has built it in advance; otherwise own builds it, because
// the source may have changed since.
func own(name string) (string, error) {
	path := filepath.Join(Root(), "bin", "test", name)
	if os.Getenv("HOLDFAST_TEST_PREPARED") != "" {
		_, err := os.Stat(path)
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	partial := fmt.Sprintf("%s-%d", path, os.Getpid())
	build := exec.CommandContext(context.Background(), "go", "build", "-o", partial, "./cmd/"+name)
	build.Dir = Root()
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, os.Rename(partial, path) // the old file stays usable for tests that are running it
}
