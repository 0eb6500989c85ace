package inspect_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-dev/holdfast/inspect"
)

// A file is an entry of an archive. Without a type it is a regular file.
type file struct {
	name, content string
	mode          int64
	kind          byte
	link          string
}

// archive returns a layer as it is.
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
	var all []inspect.Layer
	for _, b := range blobs {
		all = append(all, inspect.Layer{
			MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: "sha256:00",
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
		})
	}
	return all
}

// inspected returns what the child finds in an image.
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

const curlStatus = `Package: curl
Status: install ok installed
Architecture: amd64
Version: 7.88.1-10+deb12u5

Package: libcurl4
Status: install ok installed
Architecture: amd64
Source: curl (7.88.1-10+deb12u5)
Version: 7.88.1-10+deb12u5+b1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

`

func TestFirst(t *testing.T) {
	for name, pack := range map[string]func([]byte) []byte{"gzip": zipped, "zstd": zstandard, "plain": bytes.Clone} {
		t.Run(name, func(t *testing.T) {
			r := inspected(t, pack(archive(file{name: "var/lib/dpkg/status", content: curlStatus})),
				pack(archive(file{name: "usr/lib/os-release", content: debianRelease},
					file{name: "etc/os-release", kind: tar.TypeSymlink, link: "../usr/lib/os-release"})))
			t.Logf("%+v", r)
			if len(r.Packages) != 2 {
				t.Fatal("not 2")
			}
		})
	}
}
