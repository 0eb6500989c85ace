package e2e_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/server"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// upstream gives a group an upstream, and returns its uid.
func (w *world) upstream(t *testing.T, group string) string {
	t.Helper()
	in := &ocipb.CreateUpstreamRequest{Parent: group, Upstream: &ocipb.Upstream{Name: "docker.io"}}
	return must[*ocipb.Upstream](t, w.overGRPC, w.Token, in).GetUid()
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	free, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// A distribution is the registry of that name, which wants tokens of a realm that wants a password.
type distribution struct {
	address string
	key     *rsa.PrivateKey
}

const distributionUser, distributionPassword = "robot", "the-password-of-distribution"

// startDistribution builds and starts distribution.
func startDistribution(t *testing.T) *distribution {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "registry")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../tools/distribution", "-o", binary, "github.com/distribution/distribution/v3/cmd/registry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build distribution: %v\n%s", err, out)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	d := &distribution{freePort(t), key}
	realm := httptest.NewServer(d)
	t.Cleanup(realm.Close)
	b64 := base64.RawURLEncoding.EncodeToString
	keys := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"one","use":"sig","alg":"RS256","n":%q,"e":"AQAB"}]}`, b64(key.N.Bytes()))
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %q}}
http: {addr: %q, relativeurls: true}
auth: {token: {realm: %q, service: distribution, issuer: realm, jwks: %q}}
`, filepath.Join(dir, "data"), d.address, realm.URL+"/token", filepath.Join(dir, "keys.json"))
	for name, text := range map[string]string{"keys.json": keys, "config.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve", filepath.Join(dir, "config.yml"))
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	procUntil(t, "distribution serves", func() bool {
		status, _ := d.ping(t)
		return status == http.StatusUnauthorized
	})
	return d
}

// token returns a token for a scope, such as repository:app:pull.
func (d *distribution) token(scope string) string {
	parts := strings.Split(scope, ":")
	access := []map[string]any{}
	if len(parts) == 3 {
		access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": strings.Split(parts[2], ",")})
	}
	now := time.Now()
	claims, _ := json.Marshal(map[string]any{"iss": "realm", "sub": distributionUser, "aud": "distribution", "exp": now.Add(time.Hour).Unix(),
		"nbf": now.Add(-time.Minute).Unix(), "iat": now.Unix(), "jti": "x", "access": access})
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"RS256","typ":"JWT","kid":"one"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, d.key, crypto.SHA256, sum[:])
	return text + "." + b64(signature)
}

// ServeHTTP is the realm: it gives a token for the password.
func (d *distribution) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != distributionUser || password != distributionPassword {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, `{"token":%q,"expires_in":300}`, d.token(r.URL.Query().Get("scope")))
}

// TestMirrorOfDistribution pulls through from distribution, which wants a token of a realm at another host, over the whole
// server and both engines.
func TestMirrorOfDistribution(t *testing.T) {
	t.Parallel()
	d := startDistribution(t)
	far := &ociClient{d.address, d.token("repository:library/app:pull,push"), &http.Client{Timeout: procPatience}}
	layer := bytes.Repeat([]byte("layer"), 100_000)
	far.pushAll(t, "library/app", "v1", layer)
	eachWorld(t, func(t *testing.T, w *world) {
		group := w.child(t, string(w.Organization), "mirror")
		realm := must[*ocipb.Upstream](t, w.overGRPC, w.Token, &ocipb.CreateUpstreamRequest{Parent: group, Upstream: &ocipb.Upstream{
			Name: "distribution", Address: "http://" + d.address, Credentials: distributionUser + ":" + distributionPassword,
		}})
		near := &ociClient{w.RegistryHost, w.RegistryToken, &http.Client{Timeout: procPatience}}
		if _, text, err := near.expect(t.Context(), http.StatusForbidden, "GET", "/v2/dev/mirror/library/app/manifests/v1", nil); err != nil {
			t.Errorf("the password went to a realm that nobody named: %s, %v", text, err)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.UpdateUpstreamRequest{Upstream: &ocipb.Upstream{
			Uid: realm.GetUid(), Realm: d.realm(t), Credentials: distributionUser + ":" + distributionPassword,
		}})
		if err := near.pull(t.Context(), "dev/mirror/library/app", "v1"); err != nil {
			t.Fatal(err)
		}
		got := must[*ocipb.Upstream](t, w.overHTTP, w.Token, &ocipb.GetUpstreamRequest{Uid: realm.GetUid()})
		if !got.GetHasCredentials() || got.GetCredentials() != "" {
			t.Errorf("upstream = %v", got)
		}
	})
}

// pushAll pushes an image in requests that any registry understands.
func (c *ociClient) pushAll(t *testing.T, repo, tag string, layer []byte) {
	t.Helper()
	config := []byte(`{"os":"linux","architecture":"amd64"}`)
	expect := func(status int, method, path string, body []byte, headers ...string) http.Header {
		t.Helper()
		resp, text, err := c.expect(t.Context(), status, method, path, body, headers...)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
		return resp.Header
	}
	var refs []string
	for _, b := range [][]byte{config, layer} {
		at := expect(http.StatusAccepted, "POST", "/v2/"+repo+"/blobs/uploads/", nil).Get("Location")
		expect(http.StatusCreated, "PUT", at+"&digest="+ociDigest(b), b, "Content-Type", "application/octet-stream")
		refs = append(refs, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, ociDigest(b), len(b)))
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, kind, refs[0], refs[1])
	expect(http.StatusCreated, "PUT", "/v2/"+repo+"/manifests/"+tag, []byte(m), "Content-Type", kind)
}

// ping asks distribution what it wants of clients. The status is 0 if it does not answer.
func (d *distribution) ping(t *testing.T) (status int, _ http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.address+"/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// realm returns where distribution says that its tokens are.
func (d *distribution) realm(t *testing.T) string {
	t.Helper()
	_, header := d.ping(t)
	_, rest, _ := strings.Cut(header.Get("Www-Authenticate"), `realm="`)
	realm, _, _ := strings.Cut(rest, `"`)
	return realm
}

// TestMirrorKeyless pulls through from another Holdfast, to which this one proves who it is: there is no secret.
func TestMirrorKeyless(t *testing.T) {
	t.Parallel()
	address := freePort(t)
	near := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_LISTEN="+address, "HOLDFAST_BASE_URL=http://"+address)
	far := serve(t, storetest.SQLite(t), server.Config{}, nil)
	far.child(t, string(far.Organization), "images")
	far.pushImage(t, "dev/images/app", "v1", "amd64", "from afar")
	org := string(near.dev.Organization)
	group := procMust[procGroup](t, near.owner(), http.MethodPost, "/iam/v2beta1/groups/"+org, map[string]any{"name": "mirror"})
	up := procMust[struct{ UID string }](t, near.owner(), http.MethodPost, "/oci/v1/upstreams/"+string(group.UID), map[string]any{"name": "far", "address": far.BaseURL})
	identity := must[*iampb.Identity](t, far.overGRPC, far.Token, &iampb.CreateIdentityRequest{Parent: string(far.Organization), Identity: &iampb.Identity{
		Name: "mirror", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
			Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: "http://" + address}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "upstream:" + up.UID},
			Aud: &iampb.Identity_ClaimMatch_Audience{Audience: far.BaseURL},
		}},
	}})
	pull := func(want int) {
		t.Helper()
		if _, text, err := near.registry().expect(t.Context(), want, "GET", "/v2/dev/mirror/dev/images/app/manifests/v1", nil); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	pull(http.StatusForbidden)
	procMust[struct{}](t, near.owner(), http.MethodPatch, "/oci/v1/upstreams/"+up.UID+"?updateMask=identity", map[string]any{"identity": identity.GetUid()})
	pull(http.StatusForbidden) // it has no role yet
	far.bind(t, string(far.Organization), identity.GetUid(), string(resource.ManagedRoleUID("registry.pull")))
	pull(http.StatusOK)
	if err := near.registry().pull(t.Context(), "dev/mirror/dev/images/app", "v1"); err != nil {
		t.Fatal(err)
	}
}

// TestMirrorFullDisk: if there is no room for a blob, whoever pulls is told so or gets less than its length, nothing half
// is stored, and when there is room the blob arrives.
func TestMirrorFullDisk(t *testing.T) {
	layer := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB
	far := serve(t, storetest.SQLite(t), server.Config{}, nil)
	far.child(t, string(far.Organization), "images")
	origin := &ociClient{far.RegistryHost, far.RegistryToken, &http.Client{Timeout: procPatience}}
	if err := origin.push(t.Context(), "dev/images/app", "v1", layer); err != nil {
		t.Fatal(err)
	}
	for _, full := range []string{"blobs", "data"} { // where blobs are stored, and where they are held while they arrive
		t.Run(full, func(t *testing.T) {
			disk, other := faultDisk(t, 16<<20), t.TempDir()
			dirs := map[string]string{"blobs": other, "data": other}
			dirs[full] = disk
			p := procStart(t, "HOLDFAST_DATA_DIR="+filepath.Join(dirs["data"], "d"), "HOLDFAST_BLOBS="+filepath.Join(dirs["blobs"], "b"), "HOLDFAST_DATABASE="+filepath.Join(other, "h.db"))
			group := procMust[procGroup](t, p.owner(), http.MethodPost, "/iam/v2beta1/groups/"+string(p.dev.Organization), map[string]any{"name": "mirror"})
			procMust[struct{}](t, p.owner(), http.MethodPost, "/oci/v1/upstreams/"+string(group.UID), map[string]any{"name": "far", "address": far.BaseURL, "credentials": "_token:" + far.RegistryToken})
			path := "/v2/dev/mirror/dev/images/app/blobs/" + ociDigest(layer)
			filler := faultFill(t, disk)
			resp, text, err := p.registry().send(t.Context(), "GET", path, nil)
			if err == nil && resp.StatusCode == http.StatusOK {
				t.Errorf("%d bytes that look complete, with a full disk", len(text))
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if _, text, err := p.registry().expect(t.Context(), http.StatusOK, "GET", path, nil); err != nil || !bytes.Equal(text, layer) {
				t.Errorf("%d bytes when there is room: %v", len(text), err)
			}
			if n := ociFiles(t, filepath.Join(dirs["blobs"], "b"), func(string) {}); n != 1 {
				t.Errorf("%d files, want 1", n)
			}
			p.stop()
		})
	}
}
