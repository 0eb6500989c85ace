package extract_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/extract"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// FuzzRelease checks that parsing any text as os-release gives a valid Distribution.
func FuzzRelease(f *testing.F) {
	f.Add([]byte("ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME='Debian \\\"12'\n"))
	f.Add([]byte("ID=\"\nNAME=\x00\nVERSION=\"\\\""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d := extract.ParseRelease(b); !d.Valid() {
			t.Fatalf("%+v", d)
		}
	})
}

// wanted are paths of files that this package reads itself, or passes to an extractor of osv-scalibr.
var wanted = []string{
	"etc/os-release", "var/lib/dpkg/status", "var/lib/dpkg/info/a.list", "var/lib/dpkg/status.d/a.md5sums",
	"var/lib/pacman/local/a-1-1/files", "var/lib/pacman/local/a-1-1/desc", "lib/apk/db/installed",
	"vendor/composer/installed.json",
	"node_modules/a/package.json", "a.dist-info/METADATA", "x/specifications/a.gemspec", "a.deps.json",
	"conda-meta/a.json",
	"a.jar", "bin/a", "var/lib/rpm/Packages.db", "var/lib/chisel/manifest.wall",
}

// FuzzFile reads any content as any kind of file, and checks that the packages are valid.
func FuzzFile(f *testing.F) {
	f.Add(6, []byte("P:musl\nV:1.2.5-r0\nA:x86_64\nF:lib\nR:libc.so\n\n"))
	f.Add(1, []byte("Package: a\nStatus: install ok installed\nVersion: 1\n\n"))
	f.Add(7, []byte(`{"packages":[{"name":"a/b","version":"1"}]}`))
	f.Add(8, []byte(`{"name":"a","version":"1"}`))
	f.Add(5, []byte("%NAME%\na\n\n%VERSION%\n1-1\n"))
	f.Fuzz(func(t *testing.T, kind int, content []byte) {
		name := wanted[uint(kind)%uint(len(wanted))]
		finder, err := extract.New(extract.Limits{Packages: 1000, Warnings: 10})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))})
		_, writeErr := w.Write(content)
		if err := errors.Join(err, writeErr, w.Close()); err != nil {
			t.Fatal(err)
		}
		limits := layer.Limits{Bytes: 1 << 24, Entries: 10, Kept: 1000, InMemory: 1 << 20, Spool: 1 << 24}
		stack := layer.New(limits, finder)
		defer stack.Close()
		if err := stack.Add(t.Context(), &b); err != nil {
			if !errors.Is(err, layer.ErrLimit) {
				t.Fatal(err)
			}
			return
		}
		found := finder.Finish(stack)
		for _, p := range found.Packages {
			if !p.Valid() || p.Location != name || !strings.HasPrefix(p.Purl, "pkg:") {
				t.Fatalf("%+v", p)
			}
		}
	})
}
