package assembly_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// An origin is an external registry. Tests can make it fail.
type origin struct {
	*httptest.Server
	mu        sync.Mutex
	manifests map[string][]byte // content of manifests, by repo and reference
	types     map[string]string // media types of manifests, by digest
	blobs     map[string][]byte
	asked     map[string]int // number of requests, by method and kind
	passwords []string       // received Authorization headers
	auth      string         // authentication that is demanded: basic, token, or "" for none
	perPage   int            // number of referrers on a page; 0 means no limit
	hostile   func(w http.ResponseWriter, r *http.Request) (done bool)
}

func newOrigin(t testing.TB) *origin {
	o := &origin{
		manifests: map[string][]byte{}, types: map[string]string{}, blobs: map[string][]byte{}, asked: map[string]int{},
	}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

// behave sets a function that can respond to requests instead of the origin. It returns true if it has responded.
func (o *origin) behave(f func(w http.ResponseWriter, r *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hostile = f
}

// count returns the number of requests of a kind, such as "GET blobs", and resets the number to 0.
func (o *origin) count(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer delete(o.asked, kind)
	return o.asked[kind]
}

// arrived returns the number of requests of a kind, without resetting it.
func (o *origin) arrived(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[kind]
}

// total returns the number of all requests, and resets all numbers to 0.
func (o *origin) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.asked {
		n += one
	}
	clear(o.asked)
	return n
}

const originUser, originPassword = "robot", "s3cret-of-origin"

func basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(originUser+":"+originPassword))
}

// ServeHTTP implements http.Handler.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind := "token"
	if len(parts) > 3 {
		kind = parts[len(parts)-2]
	}
	o.mu.Lock()
	o.asked[r.Method+" "+kind]++
	if auth := r.Header.Get("Authorization"); auth != "" {
		o.passwords = append(o.passwords, auth)
	}
	hostile, auth := o.hostile, o.auth
	o.mu.Unlock()
	if hostile != nil && hostile(w, r) {
		return
	}
	if kind == "token" {
		o.serveToken(w, r)
		return
	}
	given := r.Header.Get("Authorization")
	switch {
	case auth == "basic" && given != basic():
		w.Header().Set("Www-Authenticate", `Basic realm="origin"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	case auth == "token" && given != "Bearer token-of-origin":
		w.Header().Set("Www-Authenticate", `Bearer realm="`+o.URL+`/token",service="origin",scope="repository:x:pull"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	o.serveContent(w, r, strings.Join(parts[1:len(parts)-2], "/"), kind, parts[len(parts)-1])
}

func (o *origin) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != basic() || r.URL.Query().Get("scope") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprint(w, `{"token":"token-of-origin","expires_in":300}`)
}

func (o *origin) serveContent(w http.ResponseWriter, r *http.Request, repo, kind, reference string) {
	o.mu.Lock()
	content, ok := o.blobs[reference], true
	mediaType := "application/octet-stream"
	switch kind {
	case "manifests":
		content, ok = o.manifests[repo+" "+reference]
		mediaType = o.types[sha(content)]
		w.Header().Set("Docker-Content-Digest", sha(content))
	case "blobs":
		_, ok = o.blobs[reference]
	case "referrers":
		content, mediaType, ok = o.referrers(w, r, reference), ocispec.MediaTypeImageIndex, true
	}
	o.mu.Unlock()
	if !ok {
		w.Header().Del("Docker-Content-Digest")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(content)))
}

// referrers returns the index of the referrers of a digest, or a page of it.
func (o *origin) referrers(w http.ResponseWriter, r *http.Request, subject string) []byte {
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	index.SchemaVersion = 2
	seen := map[string]bool{}
	for _, body := range o.manifests {
		var m ocispec.Manifest
		if json.Unmarshal(body, &m) == nil && m.Subject != nil && m.Subject.Digest.String() == subject && !seen[sha(body)] {
			seen[sha(body)] = true
			index.Manifests = append(index.Manifests,
				ocispec.Descriptor{MediaType: m.MediaType, Digest: digestOf(body), Size: int64(len(body))})
		}
	}
	slices.SortFunc(index.Manifests,
		func(a, b ocispec.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	last := r.URL.Query().Get("last")
	index.Manifests = slices.DeleteFunc(index.Manifests,
		func(d ocispec.Descriptor) bool { return string(d.Digest) <= last })
	if n := o.perPage; n > 0 && len(index.Manifests) > n {
		index.Manifests = index.Manifests[:n]
		w.Header().Set("Link", `<`+r.URL.Path+`?last=`+string(index.Manifests[n-1].Digest)+`>; rel="next"`)
	}
	b, _ := json.Marshal(index)
	return b
}

// about adds a referrer of a manifest, and returns the referrer.
func (o *origin) about(repo string, subject []byte, word string) []byte {
	a := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/x-" + word, Config: o.blob("{}"),
		Layers: []ocispec.Descriptor{o.blob(word)}, Subject: &ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(subject), Size: int64(len(subject)),
		},
	}
	a.SchemaVersion = 2
	b, _ := json.Marshal(a)
	return o.put(repo, "", ocispec.MediaTypeImageManifest, b)
}

// blob adds a blob, and returns its descriptor.
func (o *origin) blob(content string) ocispec.Descriptor {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blobs[sha([]byte(content))] = []byte(content)
	return ocispec.Descriptor{
		MediaType: "application/octet-stream", Digest: digestOf([]byte(content)), Size: int64(len(content)),
	}
}

// put adds a manifest and returns it. The manifest gets a tag unless tag is "".
func (o *origin) put(repo, tag, mediaType string, body []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.types[sha(body)] = mediaType
	o.manifests[repo+" "+sha(body)] = body
	if tag != "" {
		o.manifests[repo+" "+tag] = body
	}
	return body
}

// image adds an image with one layer, and returns its manifest.
func (o *origin) image(repo, tag, layer string) []byte {
	m := image(o.blob(`{"os":"linux","architecture":"amd64"}`), o.blob(layer))
	return o.put(repo, tag, ocispec.MediaTypeImageManifest, m)
}

// index adds an index that lists images, and returns the index.
func (o *origin) index(repo, tag string, images ...[]byte) []byte {
	i := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	i.SchemaVersion = 2
	for n, m := range images {
		i.Manifests = append(i.Manifests, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(m), Size: int64(len(m)),
			Platform: &ocispec.Platform{OS: "linux", Architecture: []string{"amd64", "arm64"}[n%2]},
		})
	}
	b, _ := json.Marshal(i)
	return o.put(repo, tag, ocispec.MediaTypeImageIndex, b)
}

// A mirrorRig is a rig whose server fetches from upstreams and whose clock the test moves.
type mirrorRig struct {
	*rig
	*clock
	service *metadata.Service
	key     secret.Key
}

func newMirrorRig(t testing.TB, s *storetest.Store, change func(*assembly.Config)) *mirrorRig {
	t.Helper()
	c := newClock()
	s.Now = c.now
	m := &mirrorRig{clock: c, key: secret.NewKey()}
	out := outbound.Config{Loopback: true, PerHost: mirror.MaxFetches, Timeout: patience}
	cfg := assembly.Config{
		Now: c.now, Key: m.key, Outbound: out, Dir: t.TempDir(),
		Upstreams: upstream.New(upstream.Config{Outbound: out, Now: c.now, Stall: patience}),
	}
	if change != nil {
		change(&cfg)
	}
	m.rig = newRig(t, s, cfg)
	m.service = m.Metadata(page.NewTokens([]byte(strings.Repeat("k", 32)), c.now))
	return m
}

// replica returns another server that uses the same database and storage.
func (m *mirrorRig) replica(t testing.TB) *mirrorRig {
	t.Helper()
	return m.replicaThatWaits(t, patience, patience)
}

// replicaThatWaits returns a replica with the given timeouts: for the response of an upstream, and for the next
// bytes of a blob.
func (m *mirrorRig) replicaThatWaits(t testing.TB, timeout, stall time.Duration) *mirrorRig {
	t.Helper()
	other, r := *m, *m.rig
	checker, err := authz.Load(t.Context(), m.store.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	out := outbound.Config{Loopback: true, PerHost: mirror.MaxFetches, Timeout: timeout}
	r.Registry = assembly.New(m.store.DB, checker, m.issuer, blob.NewFolder(m.blobs), assembly.Config{
		Host: m.host, Realm: m.url + "/v2/token", Now: m.now, Key: m.key, Outbound: out, Dir: t.TempDir(),
		Upstreams: upstream.New(upstream.Config{Outbound: out, Now: m.now, Stall: stall}),
	})
	server := httptest.NewServer(r.Registry)
	t.Cleanup(server.Close)
	r.url, other.rig = server.URL, &r
	return &other
}

// files returns the number of files in the blob storage.
func (m *mirrorRig) files(t testing.TB) (n int) {
	t.Helper()
	must(t, filepath.WalkDir(m.blobs, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	}))
	return n
}

// stored waits until a blob is stored. This can happen after clients have received the blob.
func (m *mirrorRig) stored(t testing.TB, digest string) {
	t.Helper()
	until(t, digest+" is stored", func() bool {
		_, err := m.store.StoredBlob(t.Context(), digest)
		return err == nil
	})
}

// mirrors creates a group with an upstream, and returns the path of the group and the upstream.
func (m *mirrorRig) mirrors(
	t testing.TB, name, address string, change func(*registry.Upstream),
) (string, registry.Upstream) {
	t.Helper()
	g := m.group(t, m.org.UID, name)
	u := registry.Upstream{Name: "origin", Address: address}
	if change != nil {
		change(&u)
	}
	ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
	u, err := m.service.CreateUpstream(ctx, g.UID, u)
	must(t, err)
	return "acme/" + name, u
}

// get sends a GET request with the role registry.pull, and checks the status of the response.
func (m *mirrorRig) get(t testing.TB, path string, status int) answer {
	t.Helper()
	return m.want(t, call{method: "GET", path: "/v2/" + path, who: "registry.pull"}, status)
}
