// Package upstreamtest starts distribution, the reference implementation of a registry, for tests that need a
// registry of another vendor.
package upstreamtest

import (
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
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// The credentials that the realm of a Distribution demands.
const (
	User     = "robot"
	Password = "the-password-of-distribution"
)

// A Distribution is a running registry of the distribution project. It demands tokens, which its realm issues for a
// password.
type Distribution struct {
	Address string // host and port of the registry
	Front   string // host and port of a proxy in front of the registry, which also serves the realm
	key     *rsa.PrivateKey
}

// Realm returns the address of the realm, which the registry names in its challenges.
func (d *Distribution) Realm() string { return "http://" + d.Front + "/token" }

// Start starts distribution until the test ends.
func Start(t *testing.T) *Distribution {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	d := &Distribution{Address: freePort(t), key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/token", d.serveToken)
	mux.Handle("/", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: d.Address}))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	d.Front = strings.TrimPrefix(front.URL, "http://")
	d.run(t, d.configure(t))
	for range 1000 {
		if d.serves(t) {
			return d
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("distribution does not serve")
	return nil
}

// configure writes the configuration of distribution and returns the path of its file.
func (d *Distribution) configure(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	modulus := base64.RawURLEncoding.EncodeToString(d.key.N.Bytes())
	keys := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"one","use":"sig","alg":"RS256","n":%q,"e":"AQAB"}]}`, modulus)
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %q}}
http: {addr: %q, relativeurls: true}
auth: {token: {realm: %q, service: distribution, issuer: realm, jwks: %q}}
`, filepath.Join(dir, "data"), d.Address, d.Realm(), filepath.Join(dir, "keys.json"))
	for name, text := range map[string]string{"keys.json": keys, "config.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.yml")
}

// run runs distribution until the test ends.
func (d *Distribution) run(t *testing.T, config string) {
	t.Helper()
	program := testprogram.Path(t, "registry")
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "serve", config)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// serves reports whether the registry has started: it then refuses requests without a token.
func (d *Distribution) serves(t *testing.T) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Address+"/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusUnauthorized
}

// Token returns a token for scopes, such as repository:app:pull.
func (d *Distribution) Token(scopes ...string) string {
	access := []map[string]any{}
	for _, scope := range scopes {
		parts := strings.Split(scope, ":")
		if len(parts) == 3 {
			access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": strings.Split(parts[2], ",")})
		}
	}
	issued := time.Now()
	claims, _ := json.Marshal(map[string]any{
		"iss": "realm", "sub": User, "aud": "distribution", "exp": issued.Add(time.Hour).Unix(),
		"nbf": issued.Add(-time.Minute).Unix(), "iat": issued.Unix(), "jti": "x", "access": access,
	})
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"RS256","typ":"JWT","kid":"one"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, d.key, crypto.SHA256, sum[:])
	return text + "." + b64(signature)
}

// serveToken serves the realm. It responds with a token if the request has the right user and password.
func (d *Distribution) serveToken(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != User || password != Password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, `{"token":%q,"expires_in":300}`, d.Token(r.URL.Query()["scope"]...))
}

// freePort returns a local address on which no server listens.
func freePort(t *testing.T) string {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}
