package assembly_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// TestConformance runs the conformance suite of the Open Container Initiative: all of version 1.1 and the additions of
// the next version, with sha256 and sha512.
func TestConformance(t *testing.T) {
	suite := testprogram.Path(t, "conformance")
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		for _, sparse := range []bool{false, true} {
			t.Run(fmt.Sprintf("sparse=%v", sparse), func(t *testing.T) {
				if sparse && s.Replicated() {
					t.Skip("the engine makes no difference to it")
				}
				r := newRig(t, s, assembly.Config{Sparse: sparse})
				runSuite(t, suite, r, sparse)
			})
			if s.Replicated() {
				return
			}
			s = storetest.Open(t, storetest.SQLite(t))
		}
	})
}

func runSuite(t *testing.T, suite string, r *rig, sparse bool) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), suite)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"OCI_REGISTRY="+r.host, "OCI_TLS=disabled", "OCI_REPO1=acme/team/one", "OCI_REPO2=acme/two",
		"OCI_USERNAME=_token", "OCI_PASSWORD="+r.tokens["owner"], "OCI_VERSION=1.1", "OCI_LOG=error",
		"OCI_RESULTS_DIR="+dir,
		"OCI_API_BLOBS_UPLOAD_CANCEL=true", "OCI_API_MANIFESTS_TAG_PARAM=true", "OCI_API_BLOBS_DIGEST_HEADER=true",
		"OCI_API_MANIFESTS_DIGEST_HEADER=true", "OCI_DATA_SHA512=true", fmt.Sprintf("OCI_DATA_SPARSE=%v", sparse))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the suite: %v", err)
	}
	passed := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasSuffix(line, ": Pass\n") {
			passed++
		}
		if strings.Contains(line, ": FAIL") || strings.Contains(line, ": Error") || strings.Contains(line, ": Skip") {
			t.Error(strings.TrimSpace(line))
		}
	}
	if passed < 900 {
		t.Errorf("only %d checks passed:\n%s", passed, out)
	}
}

// files returns the number of files in the blob storage.
func (r *rig) files(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(r.blobs, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return n
}

// TestBadInput checks that invalid requests are refused with errors of the protocol, and that they store nothing.
func TestBadInput(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	m := r.pushImage(t, "acme/team/app", "v1", "layer")
	layer, none := sha([]byte("layer")), sha([]byte("none"))
	config := fmt.Sprintf(`{"mediaType":"a/b","digest":%q,"size":5}`, layer)
	doc := func(format string, args ...any) string {
		return `{"schemaVersion":2,` + fmt.Sprintf(format, args...) + `}`
	}
	many := strings.TrimSuffix(strings.Repeat(config+",", 5000), ",")
	put := func(body string, headers ...string) call {
		if headers == nil {
			headers = []string{"Content-Type", ocispec.MediaTypeImageManifest}
		}
		return call{method: "PUT", path: "manifests/bad", body: strings.NewReader(body), headers: headers}
	}
	tests := map[string]struct {
		call   call
		status int
		code   string
	}{
		"no JSON":           {put("{"), 400, "MANIFEST_INVALID"},
		"an empty manifest": {put(""), 400, "MANIFEST_INVALID"},
		"a list":            {put("[]"), 400, "MANIFEST_INVALID"},
		"two values":        {put("{} {}"), 400, "MANIFEST_INVALID"},
		"deep nesting": {put(doc(`"x":%s%s`, strings.Repeat("[", 100_000),
			strings.Repeat("]", 100_000))), 400, "MANIFEST_INVALID"},
		"an old schema": {put(`{"schemaVersion":1}`), 400, "MANIFEST_INVALID"},
		"no schema":     {put(`{}`), 400, "MANIFEST_INVALID"},
		"a name twice":  {put(doc(`"config":%s,"config":%s`, config, config)), 400, "MANIFEST_INVALID"},
		"a name twice, deep inside": {put(doc(`"layers":[{"digest":%q,"digest":%q}]`, layer, none)), 400,
			"MANIFEST_INVALID"},
		"a name in two cases":   {put(doc(`"config":%s,"Config":%s`, config, config)), 400, "MANIFEST_INVALID"},
		"a wrong type":          {put(doc(`"layers":{}`)), 400, "MANIFEST_INVALID"},
		"an image and an index": {put(doc(`"config":%s,"manifests":[]`, config)), 400, "MANIFEST_INVALID"},
		"absurd counts":         {put(doc(`"layers":[%s]`, many)), 400, "MANIFEST_INVALID"},
		"a negative size": {put(doc(`"layers":[{"digest":%q,"size":-1}]`, layer)), 400,
			"MANIFEST_INVALID"},
		"a NUL in an annotation": {put(doc(`"annotations":{"a":"\u0000"}`)), 400, "MANIFEST_INVALID"},
		"a bad digest":           {put(doc(`"layers":[{"digest":"sha256:x"}]`)), 400, "DIGEST_INVALID"},
		"a digest of yore": {put(doc(`"layers":[{"digest":"md5:d41d8cd98f00b204e9800998ecf8427e"}]`)),
			400, "DIGEST_INVALID"},
		"a bad subject":  {put(doc(`"subject":{"digest":"x"}`)), 400, "DIGEST_INVALID"},
		"a missing blob": {put(doc(`"layers":[{"digest":%q}]`, none)), 404, "MANIFEST_BLOB_UNKNOWN"},
		"a missing child": {put(doc(`"manifests":[{"digest":%q}]`, none), "Content-Type",
			ocispec.MediaTypeImageIndex), 404, "MANIFEST_BLOB_UNKNOWN"},
		"another media type": {put(doc(`"mediaType":"a/b"`)), 400, "MANIFEST_INVALID"},
		"no media type":      {put(doc(`"config":%s`, config), "Content-Type", ""), 400, "MANIFEST_INVALID"},
		"a media type that is none": {put(doc(`"config":%s`, config), "Content-Type", "///"), 400,
			"MANIFEST_INVALID"},
		"an oversized manifest": {put(doc(`"x":%q`, strings.Repeat("x", 4<<20))), 413, "SIZE_INVALID"},
		"the wrong digest": {call{method: "PUT", path: "manifests/" + none, body: bytes.NewReader(m),
			headers: []string{"Content-Type", ocispec.MediaTypeImageManifest}}, 400, "DIGEST_INVALID"},
		"a tag too long": {call{method: "PUT", path: "manifests/" + strings.Repeat("x", 129),
			body: bytes.NewReader(m)}, 400, "MANIFEST_INVALID"},
		"a tag that is none": {call{method: "GET", path: "manifests/-x"}, 400, "MANIFEST_INVALID"},
		"a bad tag in the query": {call{method: "PUT", path: "manifests/bad?tag=a/b", body: bytes.NewReader(m)},
			400, "MANIFEST_INVALID"},
		"too many tags": {call{method: "PUT", path: "manifests/bad?" + manyTags(200),
			body: bytes.NewReader(m)}, 400, "MANIFEST_INVALID"},
		"a digest too short":       {call{method: "GET", path: "manifests/sha256:abc"}, 400, "DIGEST_INVALID"},
		"a blob of a bad digest":   {call{method: "GET", path: "blobs/latest"}, 400, "DIGEST_INVALID"},
		"a blob that is not there": {call{method: "GET", path: "blobs/" + none}, 404, "BLOB_UNKNOWN"},
		"a tag that is not there":  {call{method: "GET", path: "manifests/none"}, 404, "MANIFEST_UNKNOWN"},
		"bytes of another digest": {call{method: "POST", path: "blobs/uploads/?digest=" + none,
			body: strings.NewReader("x")}, 400, "DIGEST_INVALID"},
		"bytes of a bad digest": {call{method: "POST", path: "blobs/uploads/?digest=x",
			body: strings.NewReader("x")}, 400, "DIGEST_INVALID"},
		"an algorithm nobody verifies": {call{method: "POST", path: "blobs/uploads/?digest-algorithm=md5"}, 400,
			"DIGEST_INVALID"},
		"a mount of a bad digest": {call{method: "POST", path: "blobs/uploads/?mount=x"}, 400, "DIGEST_INVALID"},
		"a way out": {call{method: "PATCH", path: "blobs/uploads/../../x",
			body: strings.NewReader("x")}, 404, "UNSUPPORTED"},
		"a count that is none":        {call{method: "GET", path: "tags/list?n=x"}, 400, "UNSUPPORTED"},
		"a negative count":            {call{method: "GET", path: "tags/list?n=-1"}, 400, "UNSUPPORTED"},
		"a referrer of a tag":         {call{method: "GET", path: "referrers/v1"}, 400, "DIGEST_INVALID"},
		"a method nobody needs":       {call{method: "POST", path: "manifests/v1"}, 405, "UNSUPPORTED"},
		"another method nobody needs": {call{method: "PATCH", path: "tags/list"}, 405, "UNSUPPORTED"},
		"an address nobody knows":     {call{method: "GET", path: "nothing"}, 404, "UNSUPPORTED"},
		"a range past the end": {call{method: "GET", path: "blobs/" + layer,
			headers: []string{"Range", "bytes=5-9"}}, 416, "SIZE_INVALID"},
		"a delete of what is in use": {call{method: "DELETE", path: "blobs/" + layer}, 405, "UNSUPPORTED"},
	}
	before, files := everyRow(t, s), r.files(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.call.who, tt.call.path = "owner", "/v2/acme/team/app/"+tt.call.path
			a := r.do(t, tt.call)
			if a.status != tt.status || a.code() != tt.code {
				t.Errorf("answer = %d %.300s, want %d %s", a.status, a.body, tt.status, tt.code)
			}
		})
	}
	if after := everyRow(t, s); after != before {
		t.Errorf("something was stored: %s, before %s", after, before)
	}
	if n := r.files(t); n != files {
		t.Errorf("%d files are left of it", n-files)
	}
}

func manyTags(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("tag=t%d", i))
	}
	return strings.Join(all, "&")
}

// everyRow returns the numbers of events, uploads and unheld blobs as a text. The text changes if a request has
// stored something.
func everyRow(t *testing.T, s *storetest.Store) string {
	t.Helper()
	all, err := outbox.Read(t.Context(), s.DB, 0, 1_000_000)
	must(t, err)
	stale, err := s.StaleUploads(t.Context(), "", time.Now().Add(time.Hour), 1000)
	must(t, err)
	unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
	must(t, err)
	return fmt.Sprintf("%d events, %d uploads, %d blobs nobody holds", len(all), len(stale), len(unheld))
}

func TestBadNames(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	for _, name := range []string{
		"..", "acme/..", "acme/../app", "Acme/app", "acme/App", "acme//app", "acme/-app", "acme/app-", "acme/a..b",
		"acme/_x", "acme/a b", "acme/é",
		"acme/a%2fb", "acme/a%2Fb", "acme%2Fteam/app", "acme/%2e%2e", "acme/%00", "acme/a%0ab",
		"acme/" + strings.Repeat("a", 129), strings.Repeat("a/", 149) + "a",
		"acme/" + strings.Repeat("a", 300), "acme/app%20", "acme/app:x",
	} {
		for _, path := range []string{"/tags/list", "/manifests/v1", "/blobs/uploads/"} {
			method := "GET"
			if path == "/blobs/uploads/" {
				method = "POST"
			}
			status, code := r.raw(t, method, "/v2/"+strings.ReplaceAll(name, " ", "%20")+path)
			if status != 400 || code != "NAME_INVALID" {
				t.Errorf("%s %s%s = %d %s", method, name, path, status, code)
			}
		}
	}
}

// raw sends a request with an unchanged path, because http.Client would clean the path. It returns the status and the
// error code.
func (r *rig) raw(t *testing.T, method, path string) (int, string) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", r.host)
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Connection: close\r\nContent-Length: 0\r\n\r\n", method, path, r.host, r.tokens["owner"])
	must(t, err)
	text, err := io.ReadAll(conn)
	must(t, err)
	var status int
	_, _ = fmt.Sscanf(string(text), "HTTP/1.1 %d", &status)
	_, body, _ := strings.Cut(string(text), "\r\n\r\n")
	return status, answer{body: []byte(body)}.code()
}

// TestInterruptedUploadsGoOn checks that an upload can be continued after one of its requests was interrupted.
func TestInterruptedUploadsGoOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newRig(t, s, assembly.Config{})
		content := bytes.Repeat([]byte("0123456789"), 100_000)
		a := r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "owner"}, 202)
		at := a.header.Get("Location")
		// The client announces more bytes than it sends, and disconnects.
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", r.host)
		must(t, err)
		_, err = fmt.Fprintf(conn, "PATCH %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: 1000000\r\n\r\n", at, r.host, r.tokens["owner"])
		must(t, err)
		_, err = conn.Write(content[:123_456])
		must(t, err)
		must(t, conn.Close())
		size := 0
		for size == 0 { // wait until the server has noticed that the client is gone
			a = r.do(t, call{method: "GET", path: at, who: "owner"})
			if a.status == http.StatusNoContent && a.header.Get("Range") != "0-0" {
				_, err := fmt.Sscanf(a.header.Get("Range"), "0-%d", &size)
				must(t, err)
			}
		}
		size++
		// A chunk that does not begin at the end of the upload is refused. Until the interrupted request has ended,
		// the status is 409.
		for a.status = http.StatusConflict; a.status == http.StatusConflict; {
			a = r.do(t, call{method: "PATCH", path: at, who: "owner", body: bytes.NewReader(content[:9]),
				headers: []string{"Content-Range", "0-8"}})
		}
		if a.status != http.StatusRequestedRangeNotSatisfiable {
			t.Errorf("status = %d, want 416", a.status)
		}
		if want := fmt.Sprintf("0-%d", size-1); a.header.Get("Range") != want || a.header.Get("Location") == "" {
			t.Errorf("range = %q, want %q", a.header.Get("Range"), want)
		}
		rest := content[size:]
		r.want(t, call{method: "PUT", path: at + "?digest=" + sha(content), who: "owner", body: bytes.NewReader(rest),
			headers: []string{
				"Content-Range", fmt.Sprintf("%d-%d", size, len(content)-1),
			}}, 201)
		a = r.want(t, call{method: "GET", path: "/v2/acme/team/app/blobs/" + sha(content), who: "viewer"}, 200)
		if !bytes.Equal(a.body, content) {
			t.Error("another content came back")
		}
		for span, want := range map[string]string{"bytes=0-9": "0123456789", "bytes=-3": "789",
			"bytes=999995-": "56789", "bytes=999998-2000000": "89"} {
			a := r.want(t, call{method: "GET", path: "/v2/acme/team/app/blobs/" + sha(content), who: "viewer",
				headers: []string{"Range", span}}, 206)
			if string(a.body) != want {
				t.Errorf("%s = %q, want %q", span, a.body, want)
			}
		}
	})
}

// TestWrongLengthsAreRefused checks that an upload is refused if its length or digest is not as announced, or if its
// range is invalid.
func TestWrongLengthsAreRefused(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	a := r.want(t, call{method: "POST", path: "/v2/acme/team/app/blobs/uploads/", who: "owner"}, 202)
	at := a.header.Get("Location")
	a = r.want(t, call{method: "PATCH", path: at, who: "owner", body: strings.NewReader("12345"),
		headers: []string{"Content-Range", "0-9"}}, 400)
	if a.code() != "SIZE_INVALID" {
		t.Errorf("code = %s", a.code())
	}
	for _, header := range []string{"x", "5-1", "-1-5", "0", "bytes */5"} {
		r.want(t, call{method: "PATCH", path: at, who: "owner", body: strings.NewReader("12345"),
			headers: []string{"Content-Range", header}}, 400)
	}
	a = r.want(t, call{method: "PUT", path: at + "?digest=" + sha([]byte("other")), who: "owner",
		body: strings.NewReader("12345")}, 400)
	if a.code() != "DIGEST_INVALID" || r.files(t) != 0 {
		t.Errorf("code = %s, %d files left", a.code(), r.files(t))
	}
	a = r.want(t, call{method: "GET", path: at, who: "owner"}, 404)
	if a.code() != "BLOB_UPLOAD_UNKNOWN" {
		t.Errorf("code = %s", a.code())
	}
}

// TestFallbackTagsAreAdopted checks that referrers in the index at the referrers tag, which a client has pushed, are
// returned as referrers.
func TestFallbackTagsAreAdopted(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	r := newRig(t, s, assembly.Config{})
	subject := r.pushImage(t, "acme/team/app", "v1", "layer")
	about := r.pushImage(t, "acme/team/app", "", "signature")
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{{
		MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(about), Size: int64(len(about)),
		ArtifactType: "type/sig",
	}}}
	index.SchemaVersion = 2
	b, err := json.Marshal(index)
	must(t, err)
	r.want(t, call{
		method: "PUT", path: "/v2/acme/team/app/manifests/" + strings.Replace(sha(subject), ":", "-", 1),
		who: "owner", body: bytes.NewReader(b),
		headers: []string{"Content-Type", ocispec.MediaTypeImageIndex},
	}, 201)
	for query, want := range map[string]int{"": 1, "?artifactType=type/sig": 1, "?artifactType=type/other": 0} {
		a := r.want(t, call{method: "GET", path: "/v2/acme/team/app/referrers/" + sha(subject) + query,
			who: "viewer"}, 200)
		var got ocispec.Index
		must(t, json.Unmarshal(a.body, &got))
		if len(got.Manifests) != want {
			t.Errorf("%s: %s", query, a.body)
		}
	}
}

// TestPullsAreRecorded checks the records of pulls and pushes. Its requests are in different milliseconds, because
// records of the same millisecond have no order.
func TestPullsAreRecorded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		var moments atomic.Int64
		r := newRig(t, s, assembly.Config{Now: func() time.Time {
			return time.Now().Add(time.Duration(moments.Add(1)) * time.Millisecond)
		}})
		m := r.pushImage(t, "acme/team/app", "v1", "layer")
		r.want(t, call{method: "GET", path: "/v2/acme/team/app/manifests/v1", who: "viewer",
			headers: []string{"User-Agent", "crane/1 \xff"}}, 200)
		r.want(t, call{method: "HEAD", path: "/v2/acme/team/app/manifests/v1", who: "viewer"}, 200)
		r.Pulls.Flush(t.Context())
		got, err := s.Pulls(t.Context(), store.Reach{Under: []resource.UID{r.org.UID}}, resource.Filter{},
			page.Request{Size: 10, Order: page.Order{Field: "create_time"}})
		must(t, err)
		if len(got.Items) != 2 || !got.Items[0].Push || got.Items[1].Push {
			t.Fatalf("pulls = %+v", got.Items)
		}
		p := got.Items[1]
		if p.Identity != r.uids["viewer"] || p.Digest != sha(m) || p.Tag != "v1" || p.Remote != "127.0.0.1" ||
			p.Agent != "crane/1 ?" {
			t.Errorf("pull = %+v", p)
		}
	})
}
