package extract_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rpmdb "github.com/erikvarga/go-rpmdb/pkg"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/extract"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
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
	f.Fuzz(func(t *testing.T, kind int, content []byte) { read(t, wanted[uint(kind)%uint(len(wanted))], content) })
}

// read reads an image with one file, and checks that the packages are valid. It returns the result, or nil if the image
// exceeds a limit.
func read(t *testing.T, name string, content []byte) *extract.Found {
	t.Helper()
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
		return nil
	}
	found, err := finder.Finish(stack)
	if err != nil && !errors.Is(err, layer.ErrLimit) {
		t.Fatal(err)
	}
	for _, p := range found.Packages {
		if !p.Valid() || p.Location != name || !strings.HasPrefix(p.Purl, "pkg:") {
			t.Fatalf("%+v", p)
		}
	}
	return &found
}

// A crashed parser returns a panic of the runtime as a warning, so that it does not affect other files.
const crashed = "runtime error"

// parses is read, but fails if the parser has crashed, or has taken long.
func parses(t *testing.T, name string, content []byte) {
	t.Helper()
	start := time.Now()
	found := read(t, name, content)
	if found != nil && strings.Contains(strings.Join(found.Warnings, "\n"), crashed) {
		t.Errorf("the parser of %s crashed: %q", name, found.Warnings)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the parser of %s took %s", name, took)
	}
}

// moduleFiles returns the content of files up to a size in a folder of a module that this module requires. The module
// has them for its own tests.
func moduleFiles(t testing.TB, module, folder string, most int64) map[string][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	root := filepath.Join(strings.TrimSpace(string(out)), folder)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() > most {
			return err
		}
		files[name], err = os.ReadFile(name)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files in %s: %v", module, folder, err)
	}
	return files
}

const (
	scalibr = "github.com/google/osv-scalibr"
	goRpmdb = "github.com/erikvarga/go-rpmdb"
)

// FuzzRpm reads any content as an rpm database in each format.
func FuzzRpm(f *testing.F) {
	packages := []inspecttest.RPM{{Name: "bash", Version: "5.1.8", Release: "9.el9", Source: "bash-5.1.8-9.el9.src.rpm"}}
	f.Add([]byte(inspecttest.RPMSqlite(f, packages...)))
	f.Add([]byte(inspecttest.RPMNdb(packages...)))
	f.Add([]byte(inspecttest.RPMBerkeley(packages...)))
	for _, content := range moduleFiles(f, scalibr, "extractor/filesystem/os/rpm/testdata", 100<<10) {
		f.Add(content)
	}
	for _, content := range moduleFiles(f, goRpmdb, "pkg/testdata", 100<<10) {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) { parses(t, "var/lib/rpm/Packages", content) })
}

// FuzzRpmHeader reads any content as the header of a package in an rpm database.
func FuzzRpmHeader(f *testing.F) {
	f.Add(inspecttest.RPM{Name: "bash", Version: "5.1.8", Release: "9.el9", Epoch: 1}.Header())
	for name, content := range moduleFiles(f, goRpmdb, "pkg/testdata", 100<<10) {
		if filepath.Base(name) == "blob.bin" { // the header of a real package
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		parses(t, "var/lib/rpm/Packages.db", []byte(inspecttest.RPMNdbOf(header)))
	})
}

// FuzzApk reads any content as an apk database.
func FuzzApk(f *testing.F) {
	for _, content := range moduleFiles(f, scalibr, "extractor/filesystem/os/apk/testdata", 100<<10) {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) { parses(t, "lib/apk/db/installed", content) })
}

// FuzzJar reads any content as a jar.
func FuzzJar(f *testing.F) {
	for _, content := range moduleFiles(f, scalibr, "extractor/filesystem/language/java/archive/testdata", 100<<10) {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) { parses(t, "a.jar", content) })
}

// TestRealRpms compares the packages and files of real rpm databases with the result of another reader.
func TestRealRpms(t *testing.T) {
	n := 0
	for name := range moduleFiles(t, goRpmdb, "pkg/testdata", 8<<20) {
		switch filepath.Base(name) {
		case "Packages", "Packages.db", "rpmdb.sqlite":
		default:
			continue
		}
		n++
		db, err := rpmdb.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		packages, err := db.ListPackages()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packages {
			want = append(want, fmt.Sprintf("%s %d:%s-%s %s %s", p.Name, p.EpochNum(), p.Version, p.Release, p.Arch,
				p.SourceRpm))
			files, err := p.InstalledFileNames()
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, files...)
		}
		got, err := extract.RPMLines(t.Context(), name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%.2000s", name, err, diff)
		}
	}
	if n < 5 {
		t.Errorf("compared %d databases", n)
	}
}

// damaged returns a copy of a file with a few random changes: bits, numbers, and parts that are missing or repeated.
func damaged(r *rand.Rand, content []byte) []byte {
	b := slices.Clone(content)
	for range 1 + r.IntN(8) {
		if len(b) < 8 {
			return b
		}
		i := r.IntN(len(b) - 4)
		end := min(len(b), i+1+r.IntN(64))
		numbers := []uint32{0, 1, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, uint32(len(b)), r.Uint32()}
		n := numbers[r.IntN(len(numbers))]
		switch r.IntN(6) {
		case 0, 1:
			b[i] ^= 1 << r.IntN(8)
		case 2:
			binary.LittleEndian.PutUint32(b[i:], n)
		case 3:
			binary.BigEndian.PutUint32(b[i:], n)
		case 4:
			b = slices.Delete(b, i, end)
		case 5:
			b = slices.Insert(b, i, slices.Clone(b[i:end])...)
		}
	}
	return b
}

// TestAttackDamagedFiles reads randomly damaged copies of real rpm, apk and jar files. No parser must crash or take
// long. HOLDFAST_TEST_DAMAGES is the number of copies of each file.
func TestAttackDamagedFiles(t *testing.T) {
	copies := 20
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_TEST_DAMAGES")); err == nil {
		copies = n
	}
	bash := inspecttest.RPM{Name: "bash", Version: "5.1.8", Release: "9.el9", Source: "bash-5.1.8-9.el9.src.rpm"}
	const most = 100 << 10 // bytes of a file
	files := map[string][][]byte{
		"var/lib/rpm/rpmdb.sqlite": {[]byte(inspecttest.RPMSqlite(t, bash))},
		"var/lib/rpm/Packages.db":  {[]byte(inspecttest.RPMNdb(bash, bash, bash))},
		"var/lib/rpm/Packages":     {[]byte(inspecttest.RPMBerkeley(bash, bash, bash))},
	}
	for name, from := range map[string][2]string{
		"var/lib/rpm/Packages": {goRpmdb, "pkg/testdata"},
		"lib/apk/db/installed": {scalibr, "extractor/filesystem/os/apk/testdata"},
		"a.jar":                {scalibr, "extractor/filesystem/language/java/archive/testdata"},
	} {
		for _, content := range moduleFiles(t, from[0], from[1], most) {
			files[name] = append(files[name], content)
		}
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, content := range files[name] {
			for range copies {
				parses(t, name, damaged(r, content))
			}
		}
	}
	for range 50 * copies { // headers of packages
		parses(t, "var/lib/rpm/Packages.db", []byte(inspecttest.RPMNdbOf(damaged(r, bash.Header()))))
	}
}
