package assembly_test

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/blob/blobtest"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const lazySize = 3 << 20

// lazyLayer returns a layer of lazySize bytes that begins like a zstd file.
func lazyLayer() []byte {
	content := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuv"), lazySize/32)
	copy(content, []byte{0x28, 0xb5, 0x2f, 0xfd})
	return content
}

// A lazyPull is a request for parts of a layer, with the expected response.
type lazyPull struct {
	header string // value of the Range header
	ifIs   string // value of the If-Range header; TAG means the entity tag of the layer
	status int
	spans  [][2]int // first and last byte of each expected part
}

var whole = [][2]int{{0, lazySize - 1}}

// lazyPulls are requests as clients send them to read parts of layers. Some clients resume a pull; snapshotters mount
// an image before all of it has arrived.
var lazyPulls = map[string]lazyPull{
	"eStargz: is the size known, and do ranges work?": {"bytes=0-0", "", 206, [][2]int{{0, 0}}},
	"eStargz: the footer":                             {"bytes=-51", "", 206, [][2]int{{lazySize - 51, lazySize - 1}}},
	"zstd:chunked: the footer":                        {"bytes=-72", "", 206, [][2]int{{lazySize - 72, lazySize - 1}}},
	"eStargz: the table of contents": {
		"bytes=3000000-3145727", "", 206, [][2]int{{3000000, 3145727}},
	},
	"eStargz: chunks of several files at once": {
		"bytes=0-99,4096-8191,1048576-1048999", "", 206, [][2]int{{0, 99}, {4096, 8191}, {1048576, 1048999}},
	},
	"eStargz: chunks beyond the end": {
		"bytes=100-200,9000000-9000001", "", 206, [][2]int{{100, 200}},
	},
	"SOCI: a span between checkpoints": {
		"bytes=1048576-2097151", "", 206, [][2]int{{1 << 20, 2<<20 - 1}},
	},
	"SOCI: a span that ends with the layer": {
		"bytes=2097152-9999999", "", 206, [][2]int{{2 << 20, lazySize - 1}},
	},
	"containerd: the rest of a layer": {"bytes=1000000-", "", 206, [][2]int{{1000000, lazySize - 1}}},
	"containerd: the last byte": {
		fmt.Sprintf("bytes=%d-", lazySize-1), "", 206, [][2]int{{lazySize - 1, lazySize - 1}},
	},
	"containerd: resuming what is complete": {fmt.Sprintf("bytes=%d-", lazySize), "", 416, nil},
	"resuming what is still the same": {
		"bytes=1000000-", "TAG", 206, [][2]int{{1000000, lazySize - 1}},
	},
	"resuming what has another tag":                       {"bytes=1000000-", `"sha256:other"`, 200, whole},
	"resuming what is of some day":                        {"bytes=1000000-", "Wed, 21 Oct 2015 07:28:00 GMT", 200, whole},
	"all of it":                                           {"", "", 200, whole},
	"the last bytes of more than there are":               {"bytes=-99999999", "", 206, whole},
	"a unit that nobody knows":                            {"lines=1-2", "", 200, whole},
	"no range at all":                                     {"bytes=2-1", "", 416, nil},
	"more ranges than anybody needs":                      {"bytes=" + strings.Repeat("1-2,", 20) + "1-2", "", 200, whole},
	"ranges that overlap until they are more than a blob": {"bytes=0-,0-,0-", "", 200, whole},
}

// check sends the request, and compares the response with the expected parts of content.
func (p lazyPull) check(t *testing.T, r *rig, who, path string, content []byte) {
	t.Helper()
	headers := []string{"Accept-Encoding", "zstd;q=1.0, gzip;q=0.5"}
	if p.header != "" {
		headers = append(headers, "Range", p.header)
	}
	if p.ifIs != "" {
		headers = append(headers, "If-Range", strings.ReplaceAll(p.ifIs, "TAG", `"`+sha(content)+`"`))
	}
	a := r.want(t, call{method: "GET", path: path, who: who, headers: headers}, p.status)
	if got := a.header.Get("Content-Encoding"); got != "" {
		t.Errorf("the bytes are said to be %s", got)
	}
	if p.status == http.StatusRequestedRangeNotSatisfiable {
		return
	}
	parts := partsOf(t, a)
	if len(parts) != len(p.spans) {
		t.Fatalf("%d parts", len(parts))
	}
	for i, span := range p.spans {
		if !bytes.Equal(parts[i], content[span[0]:span[1]+1]) {
			t.Errorf("part %d has %d other bytes", i, len(parts[i]))
		}
	}
	if one := len(p.spans) == 1 && p.status == http.StatusPartialContent; one &&
		a.header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", p.spans[0][0], p.spans[0][1], len(content)) {
		t.Errorf("Content-Range: %s", a.header.Get("Content-Range"))
	}
}

// TestLazyPulls checks the responses to requests for parts of a layer in a folder and in a bucket.
func TestLazyPulls(t *testing.T) {
	content := lazyLayer()
	for kind, storage := range map[string]blob.Storage{
		"folder": blob.NewFolder(t.TempDir()), "bucket": blobtest.Start(t).Storage(t),
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRigOn(t, storetest.Open(t, storetest.SQLite(t)), storage, assembly.Config{})
			r.pushBlob(t, "acme/app", content)
			path := "/v2/acme/app/blobs/" + sha(content)
			r.head(t, "owner", path, content)
			for name, pull := range lazyPulls {
				t.Run(name, func(t *testing.T) { pull.check(t, r, "owner", path, content) })
			}
		})
	}
}

// head checks the size of a layer with a HEAD request, as clients do before they read parts of the layer.
func (r *rig) head(t *testing.T, who, path string, content []byte) {
	t.Helper()
	h := r.want(t, call{method: "HEAD", path: path, who: who}, http.StatusOK).header
	if h.Get("Content-Length") != fmt.Sprint(len(content)) || h.Get("Accept-Ranges") != "bytes" ||
		h.Get("Etag") != `"`+sha(content)+`"` {
		t.Errorf("HEAD: %v", h)
	}
}

// TestLazyPullsThrough checks requests for parts of a layer that only the upstream has. The first request fetches the
// layer, and each response is the same as for a stored layer.
func TestLazyPullsThrough(t *testing.T) {
	content := lazyLayer()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		m, o := newMirrorRig(t, s, nil), newOrigin(t)
		at, _ := m.mirrors(t, "mirror", o.URL, nil)
		o.blob(string(content))
		n := 0
		for name, pull := range lazyPulls {
			n++
			path := fmt.Sprintf("/v2/%s/app%d/blobs/%s", at, n, sha(content)) // this repo lacks the layer
			t.Run(name, func(t *testing.T) {
				m.head(t, "registry.pull", path, content)
				if all := o.count("GET blobs"); all != 0 {
					t.Errorf("HEAD has fetched it %d times", all)
				}
				pull.check(t, m.rig, "registry.pull", path, content)
				m.head(t, "registry.pull", path, content)
				pull.check(t, m.rig, "registry.pull", path, content)
				if all := o.count("GET blobs"); all > 2 { // twice, because the layer may be stored only after the first response
					t.Errorf("it was fetched %d times", all)
				}
			})
		}
	})
}

// TestLazyPullsAtOnce reads many parts of a layer while the layer arrives. It checks that the layer is fetched once.
// It also checks that no client gets a part of a layer whose digest is wrong, because clients cannot verify a part.
func TestLazyPullsAtOnce(t *testing.T) {
	content := lazyLayer()
	m, o := newMirrorRig(t, storetest.Open(t, storetest.SQLite(t)), nil), newOrigin(t)
	at, _ := m.mirrors(t, "mirror", o.URL, nil)
	wrong := bytes.Clone(content)
	wrong[len(wrong)-1]++
	for _, right := range []bool{false, true} {
		sent, status := wrong, http.StatusBadGateway
		if right {
			sent, status = content, http.StatusPartialContent
		}
		release := o.slow(string(sent))
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				first := i * 1000
				a := m.want(t, call{method: "GET", path: "/v2/" + at + "/app/blobs/" + sha(content), who: "registry.pull",
					headers: []string{"Range", fmt.Sprintf("bytes=%d-%d", first, first+999)}}, status)
				if right != bytes.Equal(a.body, content[first:first+1000]) {
					t.Errorf("part %d has %d bytes", i, len(a.body))
				}
			})
		}
		until(t, "somebody waits for it", func() bool { return o.arrived("GET blobs") > 0 })
		release()
		all.Wait()
		if n := o.count("GET blobs"); right && n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
	}
}

// partsOf returns the parts in the body of a response.
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
