package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// ociServe starts a server whose base URL is its real address, so that registry clients can reach it.
func ociServe(t *testing.T) *proc {
	t.Helper()
	return procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_BASE_URL=")
}

// A tool runs a registry client. Its logins are stored in a folder of its own.
type tool struct {
	t    *testing.T
	path string
	home string
}

func (c tool) run(args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), c.path, args...)
	cmd.Dir = c.home
	cmd.Env = append(os.Environ(), "HOME="+c.home, "DOCKER_CONFIG="+c.home,
		"REGISTRY_AUTH_FILE="+filepath.Join(c.home, "config.json"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c tool) must(args ...string) string {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", filepath.Base(c.path), strings.Join(args[:min(2, len(args))], " "), err, out)
	}
	return out
}

// crane returns a tool that runs the client crane.
func crane(t *testing.T) tool {
	t.Helper()
	return tool{t, testprogram.Path(t, "crane"), t.TempDir()}
}

// skopeo returns a tool that runs the client skopeo.
func skopeo(t *testing.T) tool {
	t.Helper()
	return tool{t, testprogram.Installed(t, "skopeo"), t.TempDir()}
}

// layerFile writes a layer with one file to dir, and returns the path of the layer.
func layerFile(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := []byte("hello")
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "layer.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRegistryClients pushes, copies, lists, pulls and deletes images with widely used clients, and checks the
// results over the API.
func TestRegistryClients(t *testing.T) {
	p := ociServe(t)
	token, host := p.registry().token, p.address
	c, s := crane(t), skopeo(t)
	c.must("auth", "login", host, "-u", "_token", "-p", token)
	c.must("append", "--oci-empty-base", "-f", layerFile(t, c.home), "-t", host+"/dev/app:v1")
	c.must("copy", host+"/dev/app:v1", host+"/dev/copy:v2")
	digest := strings.TrimSpace(c.must("digest", host+"/dev/copy:v2"))
	c.must("pull", host+"/dev/copy:v2", filepath.Join(c.home, "image.tar"))
	if got := strings.Fields(c.must("catalog", host)); len(got) != 2 {
		t.Errorf("catalog = %v", got)
	}
	creds := func(flag string) string { return "--" + flag + "=_token:" + token }
	s.must("copy", "--src-tls-verify=false", "--dest-tls-verify=false", creds("src-creds"), creds("dest-creds"),
		"docker://"+host+"/dev/app:v1", "docker://"+host+"/dev/skopeo:v1")
	if out := s.must("list-tags", "--tls-verify=false", creds("creds"),
		"docker://"+host+"/dev/skopeo"); !strings.Contains(out, `"v1"`) {
		t.Errorf("tags = %s", out)
	}
	s.must("delete", "--tls-verify=false", creds("creds"), "docker://"+host+"/dev/skopeo:v1")
	if out, err := c.run("append", "--oci-empty-base", "-f", layerFile(t, c.home), "-t",
		host+"/dev/none/app:v1"); err == nil || !strings.Contains(out, "there is no group for dev/none/app") {
		t.Errorf("a push to an unknown group: %v\n%s", err, out)
	}
	got := procMust[struct {
		Tags []struct{ Name, Digest string }
	}](t, p.owner(), http.MethodGet, "/registry/v2beta1/tags?name=v2", nil)
	if len(got.Tags) != 1 || got.Tags[0].Digest != digest {
		t.Errorf("tags = %+v, want %s", got.Tags, digest)
	}
}

// TestPullTokens checks that an identity with static keys can log in and pull with a token that is signed with its
// key. It must not push, and tokens that are expired or signed with another key must be refused.
func TestPullTokens(t *testing.T) {
	p := ociServe(t)
	if err := p.registry().push(t.Context(), "dev/app", "v1", []byte("a layer")); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const issuer, subject = "https://machines.test", "node-1"
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	path := "/iam/v2beta1/identities/" + string(p.dev.Organization)
	identity := procMust[struct{ UID resource.UID }](t, p.owner(), http.MethodPost, path, object{
		"name": "node",
		"staticKeys": object{
			"issuer": issuer, "subject": subject, "issuerKeys": string(jwks),
			"expirationTime": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}).UID
	procMust[any](t, p.owner(), http.MethodPost, "/iam/v2beta1/roleBindings/"+string(p.dev.Organization),
		object{"identityUid": identity, "roleUid": ociRole(t, "registry.pull")})
	sign := func(key *ecdsa.PrivateKey, until time.Duration) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
			(&jose.SignerOptions{}).WithHeader("kid", "k").WithType("JWT"))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		claims, err := json.Marshal(object{
			"iss": issuer, "sub": subject, "aud": "http://" + p.address, "iat": now.Add(-time.Hour).Unix(),
			"exp": now.Add(until).Unix(),
		})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(key, time.Hour)
	for name, tt := range map[string]struct {
		method, path, password string
		status                 int
	}{
		"log in":           {"GET", "/v2/token", good, 200},
		"pull":             {"GET", "/v2/dev/app/manifests/v1", good, 200},
		"push":             {"POST", "/v2/dev/app/blobs/uploads/", good, 403},
		"an expired token": {"GET", "/v2/dev/app/manifests/v1", sign(key, -time.Minute), 401},
		"another key":      {"GET", "/v2/dev/app/manifests/v1", sign(other, time.Hour), 401},
		"no token":         {"GET", "/v2/dev/app/manifests/v1", "", 401},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ociBasic(t, p.address, tt.method, tt.path, string(identity), tt.password)
			if status != tt.status {
				t.Errorf("status = %d %s, want %d", status, body, tt.status)
			}
		})
	}
	c := crane(t)
	c.must("auth", "login", p.address, "-u", string(identity), "-p", good)
	c.must("pull", p.address+"/dev/app:v1", filepath.Join(c.home, "image.tar"))
	if out, err := c.run("copy", p.address+"/dev/app:v1", p.address+"/dev/app:v2"); err == nil {
		t.Errorf("a push with a pull token succeeded: %s", out)
	}
}

// ociRole returns the UID of a managed role.
func ociRole(t *testing.T, name string) resource.UID {
	t.Helper()
	for _, r := range authz.ManagedRoles() {
		if r.Name == name {
			return r.UID
		}
	}
	t.Fatalf("there is no role %s", name)
	return ""
}

func ociBasic(t *testing.T, address, method, path, user, password string) (int, string) {
	t.Helper()
	c := &ociClient{address: address, http: &http.Client{Timeout: procPatience}}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, fmt.Sprintf("%.300s", body.String())
}
