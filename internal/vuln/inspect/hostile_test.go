package inspect_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

const lodash = "app/node_modules/lodash/package.json"

// TestNotUnderstood checks that each kind of hostile image gives a NotUnderstood error with the expected reason.
func TestNotUnderstood(t *testing.T) {
	small := archive(file{name: lodash, content: node("lodash", "1.0.0")})
	zeros := archive(file{name: "zeros", content: strings.Repeat("\x00", 20<<20)})
	many := make([]file, 1001)
	for i := range many {
		many[i].name = fmt.Sprint(i)
	}
	tests := map[string]struct {
		blobs  [][]byte
		limits inspect.Limits
		reason string
	}{
		"a bomb in gzip": {[][]byte{zipped(zeros)}, inspect.Limits{Bytes: 16 << 20}, "over the limit of 16777216 bytes"},
		"a bomb in zstd": {[][]byte{zstandard(zeros)}, inspect.Limits{Bytes: 16 << 20},
			"over the limit of 16777216 bytes"},
		"a bomb in layers": {[][]byte{zipped(zeros), zipped(append(bytes.Clone(zeros), 0))}, inspect.Limits{Bytes: 30 << 20},
			"over the limit of 31457280 bytes"},
		"many entries": {[][]byte{archive(many...)}, inspect.Limits{Entries: 1000}, "over the limit of 1000 entries"},
		"many layers":  {[][]byte{small, small, small}, inspect.Limits{Layers: 2}, "it has 3 layers, more than 2"},
		"many packages": {[][]byte{archive(file{name: "lib/apk/db/installed", content: apkInstalled})},
			inspect.Limits{Packages: 2}, "the image is over the limit of 2 packages"},
		"cut, in gzip": {[][]byte{small, zipped(zeros)[:5000]}, inspect.Limits{},
			"layer 2 (sha256:00) is not a readable archive: unexpected EOF"},
		"cut, in zstd": {[][]byte{zstandard(zeros)[:400]}, inspect.Limits{},
			"layer 1 (sha256:00) is not a readable archive"},
		"cut, as it is": {[][]byte{zeros[:1<<20]}, inspect.Limits{},
			"layer 1 (sha256:00) is not a readable archive: unexpected EOF"},
		"cut, in a package": {[][]byte{small[:520]}, inspect.Limits{},
			"layer 1 (sha256:00) is not a readable archive: unexpected EOF"},
		"no archive": {[][]byte{[]byte(strings.Repeat("text", 1000))}, inspect.Limits{},
			"not a readable archive: archive/tar: invalid tar header"},
		"a bad sum": {[][]byte{append(zipped(small)[:len(zipped(small))-8], "12345678"...)}, inspect.Limits{},
			"gzip: invalid checksum"},
		"no end of thinking": {[][]byte{archive(file{name: "var/lib/rpm/rpmdb.sqlite", content: endlessSqlite(t.Context(),
			t.TempDir())})}, inspect.Limits{Seconds: 1}, "reading it took more than 1"},
		"millions of packages": {[][]byte{zipped(archive(file{name: "lib/apk/db/installed",
			content: strings.Repeat("P:a\nV:1\n\n", 6_000_000)}))}, inspect.Limits{},
			"reading it took more than 512 MB of memory"},
	}
	digests := regexp.MustCompile("sha256:[0-9a-f]{64}")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if inspect.RaceDetector && strings.HasSuffix(tt.reason, "of memory") {
				t.Skip("the race detector needs more than any limit")
			}
			t.Setenv("TMPDIR", t.TempDir())
			err := unlessBusy(func() error {
				_, err := inspect.Image(t.Context(), layers(tt.blobs...), tt.limits)
				return err
			})
			refused, ok := errors.AsType[*inspect.NotUnderstood](err)
			if !ok || !strings.Contains(digests.ReplaceAllString(refused.Reason, "sha256:00"), tt.reason) {
				t.Errorf("error = %v (%+v), want %q", err, refused, tt.reason)
			}
			if left, err := os.ReadDir(os.TempDir()); len(left) > 0 || err != nil {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
}

// unlessBusy returns the result of read. It repeats read while the machine is too busy for it.
func unlessBusy(read func() error) (err error) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if err = read(); !errors.Is(err, inspect.ErrBusy) {
			break
		}
	}
	return err
}

// TestHostileFiles checks that a hostile file causes a warning, and that the other packages of the image are found.
func TestHostileFiles(t *testing.T) {
	deep := "x"
	for range 50 {
		deep = jar("a.jar", deep)
	}
	corrupt := []byte(inspecttest.RPMSqlite(t, rpms()...))
	for i := 100; i < len(corrupt); i += 7 {
		corrupt[i] ^= 0xff
	}
	tests := map[string]struct {
		files   []file
		warning string
	}{
		"a long manifest": {[]file{{name: "a/node_modules/b/package.json", content: strings.Repeat(" ", 17<<20)}},
			"a/node_modules/b/package.json: javascript/packagejson: the file has 17825792 bytes"},
		"a broken manifest": {[]file{{name: "a/vendor/composer/installed.json", content: "{"}},
			"a/vendor/composer/installed.json: composer: unexpected end"},
		"jars in jars":       {[]file{{name: "a.jar", content: deep}}, "a.jar: java/archive: "},
		"a bomb in a jar":    {[]file{{name: "a.jar", content: bigJar()}}, "more than 268435456"},
		"a jar that is none": {[]file{{name: "a.jar", content: strings.Repeat("x", 100)}}, "a.jar: java/archive: "},
		"a corrupt rpm in sql": {[]file{{name: "var/lib/rpm/rpmdb.sqlite", content: string(corrupt)}},
			"var/lib/rpm/rpmdb.sqlite: rpm database: "},
		"a corrupt rpm in ndb": {[]file{{name: "var/lib/rpm/Packages.db",
			content: strings.ReplaceAll(inspecttest.RPMNdb(rpms()...), "Slot", "Slop")}}, "rpm database: "},
		"an rpm that is none": {[]file{{name: "var/lib/rpm/Packages", content: strings.Repeat("x", 5000)}},
			"rpm database: "},
		"a huge blob in a database": {[]file{{name: "var/lib/rpm/Packages.db", content: hugeNdb()}},
			"rpm database: the database refers to data beyond its end"},
		"a blob that occurs twice": {[]file{{name: "var/lib/rpm/Packages.db",
			content: changed(inspecttest.RPMNdb(rpms()...), 4096+12, 4000)}}, "rpm database: "},
		"a header with too many tags": {[]file{{name: "var/lib/rpm/Packages.db",
			content: changed(inspecttest.RPMNdb(rpms()...), 4096+16, 0xffffff7f)}}, "the header of a package is invalid"},
		"a circle of pages": {[]file{{name: "var/lib/rpm/Packages",
			content: changed(inspecttest.RPMBerkeley(rpms()...), 2*512+16, 2)}}, "twice to the same data"},
		"a page of another type": {[]file{{name: "var/lib/rpm/Packages",
			content: changed(inspecttest.RPMBerkeley(rpms()...), 2*512+24, 0)}}, "a page of the database has the wrong type"},
		"a value beyond its page": {[]file{{name: "var/lib/rpm/Packages",
			content: changed(inspecttest.RPMBerkeley(rpms()...), 512+26, 0xffffffff)}}, "beyond its end"},
		"more bytes than a page": {[]file{{name: "var/lib/rpm/Packages",
			content: strings.ReplaceAll(inspecttest.RPMBerkeley(rpms()...), "\x00\x00\x07", "\xff\x00\x07")}}, "beyond its end"},
		"a journal of rpm": {[]file{{name: "var/lib/rpm/rpmdb.sqlite-wal", content: "x"}},
			"the database lacks the changes in this journal"},
		"a name with a newline": {[]file{{name: "a/node_modules/b/package.json",
			content: `{"name":"a\nb","version":"1"}`}}, "is invalid"},
		"links in circles": {[]file{link("a", "b"), link("b", "a"), link("etc/os-release", "os-release"), link("c", "c/c/c"),
			{name: "a/x/node_modules/q/package.json", content: "{}"}, {name: "c/d"}, {name: "hard", kind: tar.TypeLink,
				link: "hard"}}, ""},
		"devices and names": {[]file{{name: "dev/sda", kind: tar.TypeBlock}, {name: "pipe", kind: tar.TypeFifo},
			{name: "../../../../tmp/holdfast-escaped", content: "x"}, {name: "/etc/passwd", content: "x"},
			{name: strings.Repeat("d/", 3000) + "x"}, {name: "."}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			good := file{name: lodash, content: node("lodash", "1.0.0")}
			r := inspected(t, zipped(archive(append(tt.files, good)...)))
			if got := packageLines(r); len(got) != 1 || got[0] != "npm lodash 1.0.0   layer 0 "+lodash {
				t.Errorf("packages = %q", got)
			}
			warnings := strings.Join(r.Warnings, "\n")
			if (tt.warning == "") != (warnings == "") || !strings.Contains(warnings, tt.warning) {
				t.Errorf("warnings = %q, want %q", r.Warnings, tt.warning)
			}
			if !inspect.RaceDetector && r.MemoryBytes > 128<<20 || r.MemoryBytes == 0 {
				t.Errorf("the child had %d MB", r.MemoryBytes>>20)
			}
		})
	}
	if _, err := os.Stat("/tmp/holdfast-escaped"); err == nil {
		t.Error("a file of the archive was written")
	}
}

// TestReadError checks that an error while a layer is read is not reported as an invalid image.
func TestReadError(t *testing.T) {
	broken := errors.New("the disk is gone")
	image := layers(nil, []byte{0})
	image[1].Open = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 300<<10)), failing{broken})), nil
	}
	if _, err := inspect.Image(t.Context(), image, inspect.Limits{}); !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
	image[1].Open = func(context.Context) (io.ReadCloser, error) { return nil, broken }
	if _, err := inspect.Image(t.Context(), image, inspect.Limits{}); !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestMediaTypes(t *testing.T) {
	for mediaType, want := range map[string]bool{
		"application/vnd.oci.image.layer.v1.tar":                    true,
		"application/vnd.oci.image.layer.v1.tar+gzip":               true,
		"application/vnd.oci.image.layer.v1.tar+zstd":               true,
		"application/vnd.docker.image.rootfs.diff.tar.gzip":         true,
		"application/vnd.docker.image.rootfs.diff.tar.zstd":         true,
		"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip": true,
		"application/vnd.oci.image.layer.v1.tar+gzip+encrypted":     false,
		"application/vnd.cncf.helm.chart.content.v1.tar+gzip":       false,
		"application/vnd.in-toto+json":                              false,
		"":                                                          false,
	} {
		if inspect.IsLayer(mediaType) != want {
			t.Errorf("IsLayer(%q) = %v", mediaType, !want)
		}
	}
	image := layers(nil)
	image[0].MediaType = "application/wasm"
	_, err := inspect.Image(t.Context(), image, inspect.Limits{})
	if refused, ok := errors.AsType[*inspect.NotUnderstood](err); !ok || !strings.Contains(refused.Reason,
		`"application/wasm"`) {
		t.Errorf("error = %v", err)
	}
}

// bigJar returns a jar that contains a jar with a declared size of 300 megabytes.
func bigJar() string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "b.jar", Method: zip.Deflate, UncompressedSize64: 300 << 20,
		CompressedSize64: 100})
	must(err)
	_, err = w.Write(make([]byte, 100))
	must(err)
	must(z.Close())
	return b.String()
}

// endlessSqlite returns an rpm database in which the query for packages never ends.
func endlessSqlite(ctx context.Context, folder string) string {
	name := filepath.Join(folder, "x")
	db, err := sql.Open("sqlite", name)
	must(err)
	_, err = db.ExecContext(ctx, `CREATE VIEW Packages AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)
		SELECT x AS blob FROM c WHERE x < 0`)
	must(err)
	must(db.Close())
	content, err := os.ReadFile(name)
	must(err)
	return string(content)
}

// changed returns a database with another number at a position.
func changed(database string, position int, number uint32) string {
	b := []byte(database)
	binary.LittleEndian.PutUint32(b[position:], number)
	return string(b)
}

// hugeNdb returns an rpm database with a package of a declared size of four gigabytes.
func hugeNdb() string {
	return changed(inspecttest.RPMNdb(rpms()...), 4096+12, 0xfffffff0)
}

// TestAnswers checks that invalid answers of a child are refused.
func TestAnswers(t *testing.T) {
	good := `{"Result":{"Packages":[{"Ecosystem":"npm","Name":"a","Layer":0}]}}`
	if _, err := inspect.ParseAnswer([]byte(good), 1); err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]string{
		"nothing":               ``,
		"no result":             `{}`,
		"not JSON":              `x` + good,
		"a layer that is none":  strings.Replace(good, `"Layer":0`, `"Layer":1`, 1),
		"a negative layer":      strings.Replace(good, `"Layer":0`, `"Layer":-1`, 1),
		"no name":               strings.Replace(good, `"a"`, `""`, 1),
		"a name with a control": strings.Replace(good, `"a"`, `"a\u001b[31m"`, 1),
		"a long name":           strings.Replace(good, `"a"`, `"`+strings.Repeat("a", 1000)+`"`, 1),
		"a bad distribution":    `{"Result":{"Distribution":{"ID":"a\nb"}}}`,
	} {
		if _, err := inspect.ParseAnswer([]byte(said), 1); err == nil {
			t.Errorf("%s is accepted as an answer", name)
		}
	}
	_, err := inspect.ParseAnswer([]byte(`{"NotUnderstood":"bad\u001b[31m `+strings.Repeat("é", 1000)+`"}`), 1)
	if err == nil || len(err.Error()) > 600 || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("error = %.100q", err)
	}
}
