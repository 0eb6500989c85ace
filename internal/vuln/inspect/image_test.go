package inspect_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// A file is an entry of an archive. Without a type it is a regular file.
type file struct {
	name, content string
	mode          int64
	kind          byte
	link          string
}

// archive returns an uncompressed layer.
func archive(files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: 0o644, Size: int64(len(f.content))}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if f.mode != 0 {
			h.Mode = f.mode
		}
		must(w.WriteHeader(h))
		_, err := io.WriteString(w, f.content)
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func zipped(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	must(err)
	must(w.Close())
	return b.Bytes()
}

func zstandard(content []byte) []byte {
	w, err := zstd.NewWriter(nil)
	must(err)
	return w.EncodeAll(content, nil)
}

// layers returns the layers of an image, the lowest first.
func layers(blobs ...[]byte) []inspect.Layer {
	var found []inspect.Layer
	for _, b := range blobs {
		found = append(found, inspect.Layer{
			MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(b)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
		})
	}
	return found
}

// inspected returns the result of inspecting an image.
func inspected(t *testing.T, blobs ...[]byte) inspect.Result {
	t.Helper()
	r, err := inspect.Image(t.Context(), layers(blobs...), inspect.Limits{})
	if err != nil {
		t.Fatalf("Image: %v", err)
	}
	return r
}

const debianRelease = `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION_CODENAME=bookworm
ID=debian
`

// TestCompression checks that packages are found in layers with every kind of compression, whatever the media type is.
func TestCompression(t *testing.T) {
	for name, pack := range map[string]func([]byte) []byte{"gzip": zipped, "zstd": zstandard, "plain": bytes.Clone} {
		t.Run(name, func(t *testing.T) {
			r := inspected(t, pack(archive(file{name: lodash, content: node("lodash", "4.17.20")})), pack(nil),
				pack(archive(file{name: "app/node_modules/.wh.lodash"}, file{name: "b/node_modules/a/package.json",
					content: node("a", "1.0.0")})))
			got := strings.Join(packageLines(r), "\n")
			if want := "npm a 1.0.0   layer 2 b/node_modules/a/package.json"; got != want {
				t.Errorf("packages = %q, want %q", got, want)
			}
		})
	}
}
