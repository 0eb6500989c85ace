package assembly_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A rig is a running registry with an organization acme, a folder acme/team in it, and one identity for each role,
// which holds that role on acme.
type rig struct {
	*assembly.Registry
	store  *storetest.Store
	issuer *token.Issuer
	url    string // address of the server, without a slash at the end
	host   string
	blobs  string // path of the directory that contains the blobs
	org    resource.Group
	folder resource.Group
	tokens map[string]string       // token of each identity, by role
	uids   map[string]resource.UID // UID of each identity, by role
}

var roles = []string{"owner", "editor", "viewer", "console_viewer", "registry.push", "registry.pull"}

func newRig(t testing.TB, s *storetest.Store, cfg assembly.Config) *rig {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "blobs")
	r := newRigOn(t, s, blob.NewFolder(folder), cfg)
	r.blobs = folder
	return r
}

// newRigOn returns a rig that stores its blobs in the given storage.
func newRigOn(t testing.TB, s *storetest.Store, blobs blob.Storage, cfg assembly.Config) *rig {
	t.Helper()
	ctx := t.Context()
	r := &rig{store: s, tokens: map[string]string{}, uids: map[string]resource.UID{}}
	must(t, s.SetManagedRoles(ctx, authz.ManagedRoles()))
	checker, err := authz.Load(ctx, s.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	r.issuer, err = token.New(ctx, s.DB, token.Config{Issuer: "http://issuer.test", Key: secret.NewKey()})
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		req *http.Request) {
		r.ServeHTTP(w, req)
	}))
	r.host = server.Listener.Addr().String()
	r.url = "http://" + r.host
	cfg.Host, cfg.Realm = r.host, r.url+"/v2/token"
	r.Registry = assembly.New(s.DB, checker, r.issuer, blobs, cfg)
	server.Start()
	t.Cleanup(server.Close)
	r.org = r.group(t, "", "acme")
	r.folder = r.group(t, r.org.UID, "team")
	for _, name := range roles {
		r.uids[name] = resource.UserUID("https://people.test", name)
		r.bind(t, r.uids[name], name, r.org.UID)
		r.tokens[name] = r.mint(t, r.uids[name], r.host)
	}
	r.uids["stranger"] = resource.UserUID("https://people.test", "stranger")
	r.tokens["stranger"] = r.mint(t, r.uids["stranger"], r.host)
	r.tokens["api"] = r.mint(t, r.uids["owner"], "http://api.test")
	return r
}

const patience = 90 * time.Second // timeout for expected events

// until waits until a condition is true, and logs the condition.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	t.Log("waiting: " + what)
	testkit.Until(t, done)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) group(t testing.TB, parent resource.UID, name string) resource.Group {
	t.Helper()
	uid := resource.NewRoot()
	if parent != "" {
		uid = parent.NewChild()
	}
	now := r.store.Now()
	g, err := r.store.InsertGroup(t.Context(), resource.Group{UID: uid, Name: name, CreateTime: now, UpdateTime: now})
	must(t, err)
	return g
}

func (r *rig) bind(t testing.TB, identity resource.UID, role string, group resource.UID) {
	t.Helper()
	for _, m := range authz.ManagedRoles() {
		if m.Name == role {
			_, err := r.store.InsertBindings(t.Context(),
				[]resource.RoleBinding{{UID: group.NewChild(), Identity: identity, Role: m.UID,
					CreateTime: r.store.Now()}})
			must(t, err)
			return
		}
	}
	t.Fatalf("no role %s", role)
}

func (r *rig) mint(t testing.TB, identity resource.UID, audience string) string {
	t.Helper()
	raw, err := r.issuer.Mint(t.Context(), token.Claims{Subject: identity, Audience: []string{audience}})
	must(t, err)
	return raw
}

// An answer is a response, with its body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code returns the first error code in the body of an answer, or "".
func (a answer) code() string {
	var p struct {
		Errors []struct{ Code, Message string }
	}
	if json.Unmarshal(a.body, &p) != nil || len(p.Errors) == 0 || p.Errors[0].Message == "" {
		return ""
	}
	return p.Errors[0].Code
}

// A call describes a request. headers contains names and values in turn.
type call struct {
	method, path string
	who          string // role of the identity that sends the request; "" sends no token
	body         io.Reader
	headers      []string
}

func (r *rig) do(t testing.TB, c call) answer {
	t.Helper()
	path := c.path
	if !strings.HasPrefix(path, "http") {
		path = r.url + path
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), c.method, path, c.body)
	must(t, err)
	if tok := r.tokens[c.who]; tok != "" {
		req.Header.Set("Authorization", "Bearer "+tok)
	}
	for i := 0; i+1 < len(c.headers); i += 2 {
		req.Header.Set(c.headers[i], c.headers[i+1])
		if c.headers[i] == "Content-Length" {
			_, err := fmt.Sscan(c.headers[i+1], &req.ContentLength)
			must(t, err)
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, body}
}

func (r *rig) want(t testing.TB, c call, status int) answer {
	t.Helper()
	a := r.do(t, c)
	if a.status != status {
		t.Fatalf("%s %s by %q = %d %s, want %d", c.method, c.path, c.who, a.status, a.body, status)
	}
	return a
}

func sha(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// pushBlob pushes a blob in one request, and returns its descriptor.
func (r *rig) pushBlob(t testing.TB, repo string, content []byte) ocispec.Descriptor {
	t.Helper()
	r.want(t, call{method: "POST", path: "/v2/" + repo + "/blobs/uploads/?digest=" + sha(content), who: "owner",
		body: bytes.NewReader(content)}, http.StatusCreated)
	return ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digestOf(content),
		Size: int64(len(content))}
}

// image returns the manifest of an image with a config and layers that are already stored.
func image(config ocispec.Descriptor, layers ...ocispec.Descriptor) []byte {
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: layers}
	m.SchemaVersion = 2
	m.Config.MediaType = ocispec.MediaTypeImageConfig
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// pushImage pushes an image with one layer, and returns its manifest. If reference is "", it pushes the manifest by
// its digest.
func (r *rig) pushImage(t testing.TB, repo, reference, content string) []byte {
	t.Helper()
	config := r.pushBlob(t, repo, []byte(`{"os":"linux","architecture":"amd64"}`))
	layer := r.pushBlob(t, repo, []byte(content))
	m := image(config, layer)
	if reference == "" {
		reference = sha(m)
	}
	r.want(t, r.putting(repo, reference, m), http.StatusCreated)
	return m
}

func (r *rig) putting(repo, reference string, m []byte) call {
	return call{
		method: "PUT", path: "/v2/" + repo + "/manifests/" + reference, who: "owner", body: bytes.NewReader(m),
		headers: []string{"Content-Type", ocispec.MediaTypeImageManifest},
	}
}

// settings changes the registry settings of a group.
func (r *rig) settings(t testing.TB, group resource.UID, change func(*registry.Settings)) {
	t.Helper()
	_, err := r.store.UpdateRegistrySettings(t.Context(), group,
		func(s *registry.Settings) error { change(s); return nil })
	must(t, err)
}
