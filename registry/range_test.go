package registry_test

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/blob"
	"github.com/holdfast-dev/holdfast/blob/blobtest"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// TestLazyPulls makes the requests of clients that read parts of layers: those that resume a pull, and snapshotters that
// mount an image before they have it.
func TestLazyPulls(t *testing.T) {
	const size = 3 << 20
	content := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuv"), size/32)
	copy(content, []byte{0x28, 0xb5, 0x2f, 0xfd}) // as a layer that zstd has compressed
	last := fmt.Sprintf("bytes=%d-", size-1)
	tests := map[string]struct {
		header string
		status int
		spans  [][2]int // first and last
	}{
		"eStargz: is the size known, and do ranges work?":     {"bytes=0-0", 206, [][2]int{{0, 0}}},
		"eStargz: the footer":                                 {"bytes=-51", 206, [][2]int{{size - 51, size - 1}}},
		"eStargz: the table of contents":                      {"bytes=3000000-3145727", 206, [][2]int{{3000000, 3145727}}},
		"eStargz: chunks of several files at once":            {"bytes=0-99,4096-8191,1048576-1048999", 206, [][2]int{{0, 99}, {4096, 8191}, {1048576, 1048999}}},
		"eStargz: chunks beyond the end":                      {"bytes=100-200,9000000-9000001", 206, [][2]int{{100, 200}}},
		"SOCI: a span between checkpoints":                    {"bytes=1048576-2097151", 206, [][2]int{{1 << 20, 2<<20 - 1}}},
		"SOCI: a span that ends with the layer":               {"bytes=2097152-9999999", 206, [][2]int{{2 << 20, size - 1}}},
		"containerd: the rest of a layer":                     {"bytes=1000000-", 206, [][2]int{{1000000, size - 1}}},
		"containerd: the last byte":                           {last, 206, [][2]int{{size - 1, size - 1}}},
		"containerd: resuming what is complete":               {fmt.Sprintf("bytes=%d-", size), 416, nil},
		"all of it":                                           {"", 200, [][2]int{{0, size - 1}}},
		"a unit that nobody knows":                            {"lines=1-2", 416, nil},
		"more ranges than anybody needs":                      {"bytes=" + strings.Repeat("1-2,", 20) + "1-2", 200, [][2]int{{0, size - 1}}},
		"ranges that overlap until they are more than a blob": {"bytes=0-,0-,0-", 200, [][2]int{{0, size - 1}}},
	}
	for kind, storage := range map[string]blob.Storage{
		"folder": blob.NewFolder(t.TempDir()), "bucket": blobtest.Start(t).Storage(t),
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRigOn(t, storetest.Open(t, storetest.SQLite(t)), storage, registry.Config{})
			r.pushBlob(t, "acme/app", content)
			for name, tt := range tests {
				headers := []string{"Accept-Encoding", "zstd;q=1.0, gzip;q=0.5"}
				if tt.header != "" {
					headers = append(headers, "Range", tt.header)
				}
				a := r.want(t, call{method: "GET", path: "/v2/acme/app/blobs/" + sha(content), who: "owner", headers: headers}, tt.status)
				if got := a.header.Get("Content-Encoding"); got != "" {
					t.Errorf("%s: the bytes are said to be %s", name, got)
				}
				parts := partsOf(t, a)
				if tt.status == http.StatusRequestedRangeNotSatisfiable {
					continue
				}
				if len(parts) != len(tt.spans) {
					t.Errorf("%s: %d parts", name, len(parts))
					continue
				}
				for i, span := range tt.spans {
					if !bytes.Equal(parts[i], content[span[0]:span[1]+1]) {
						t.Errorf("%s: part %d has %d other bytes", name, i, len(parts[i]))
					}
				}
			}
		})
	}
}

// partsOf returns the parts of an answer.
func partsOf(t *testing.T, a answer) (parts [][]byte) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	must(t, err)
	if kind != "multipart/byteranges" {
		return [][]byte{a.body}
	}
	all := multipart.NewReader(bytes.NewReader(a.body), params["boundary"])
	for {
		p, err := all.NextPart()
		if err == io.EOF {
			return parts
		}
		must(t, err)
		b, err := io.ReadAll(p)
		must(t, err)
		parts = append(parts, b)
	}
}
