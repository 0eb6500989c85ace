package main

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSameBytes makes a release of the same sources again, in another folder, and
// compares every file. With -every-platform it compiles everything again; otherwise it
// uses the cache of the go command, and compares linking, packing and compressing. The
// short version, which make test runs, makes and compares only the image of the server.
func TestSameBytes(t *testing.T) {
	first := released(t)
	if *everyPlatform {
		t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
	}
	dir := filepath.Join(t.TempDir(), "elsewhere", "with a space")
	copySources(t, first.source.dir, dir)
	complete := *everyPlatform || os.Getenv("HOLDFAST_TEST_ALL") != "" // see testkit.Complete
	again := makeReleaseImage
	if complete {
		again = makeRelease
	}
	second, err := again(t.Context(), dir, filepath.Join(t.TempDir(), "second"))
	if err != nil {
		t.Fatal(err)
	}
	if first.source.version != second.source.version || first.source.modified != second.source.modified {
		t.Errorf("versions %s and %s", first.source.version, second.source.version)
	}
	if complete {
		compareFolders(t, first.files, second.files)
	}
	compareFolders(t, first.image, second.image)
}

// copySources copies a checkout, including its git history and its uncommitted changes.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	command := func(args ...string) string {
		t.Helper()
		out, err := git(t.Context(), ".", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	head := command("-C", from, "rev-parse", "HEAD")
	command("clone", "--quiet", "--shared", "--no-checkout", from, to)
	command("-C", to, "update-ref", "--no-deref", "HEAD", head)
	command("-C", to, "reset", "--quiet")
	for name := range strings.SplitSeq(command("-C", from, "ls-files", "-co", "--exclude-standard", "-z"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if name == "" || os.IsNotExist(err) {
			continue // the file was deleted, but the deletion is not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// compareFolders fails the test for files that differ between two folders or are only in
// one.
func compareFolders(t *testing.T, a, b string) {
	t.Helper()
	first, second := digests(t, a), digests(t, b)
	if len(first) == 0 {
		t.Errorf("%s is empty", a)
	}
	for name, sum := range first {
		if !bytes.Equal(second[name], sum) {
			t.Errorf("%s differs", name)
		}
		delete(second, name)
	}
	for name := range second {
		t.Errorf("%s was made the second time only", name)
	}
}

func digests(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		all[strings.TrimPrefix(path, dir)] = sum[:]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
