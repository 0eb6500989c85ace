package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/config"
)

// ask returns the answer to a request with headers.
func ask(t *testing.T, method, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// TestCORS: pages of the origins in the settings can call the API. They cannot call paths
// that use cookies or that trust every client on this machine. Pages of other origins can
// call nothing.
func TestCORS(t *testing.T) {
	const console = "https://console.example.com"
	dir := t.TempDir()
	r := start(t, server.Config{Dev: true, DataDir: dir, CORSOrigins: config.Origins{console, "http://localhost:5173"}})
	token := readDevFile(t, dir).Token
	for _, origin := range []string{console, "http://localhost:5173"} {
		for _, path := range []string{"/iam/v2beta1/groups", "/openapi.json", "/.well-known/jwks.json"} {
			got := ask(t, "GET", r.url+path, "Origin", origin, "Authorization", "Bearer "+token)
			if h := got.Header; got.StatusCode != 200 || h.Get("Access-Control-Allow-Origin") != origin ||
				!strings.Contains(h.Get("Access-Control-Expose-Headers"), "X-Request-Id") {
				t.Errorf("%s of %s: %d %v", path, origin, got.StatusCode, h)
			}
		}
		got := ask(t, "OPTIONS", r.url+"/iam/v2beta1/groups", "Origin", origin, "Access-Control-Request-Method", "PATCH")
		if h := got.Header; got.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != origin ||
			!strings.Contains(h.Get("Access-Control-Allow-Methods"), "PATCH") ||
			!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("preflight of %s: %d %v", origin, got.StatusCode, h)
		}
	}
	type request struct{ method, path, origin string }
	for name, tt := range map[string]request{
		"no origin":              {"GET", "/iam/v2beta1/groups", ""},
		"another":                {"GET", "/iam/v2beta1/groups", "https://evil.example.com"},
		"one that begins so":     {"GET", "/iam/v2beta1/groups", console + ".evil.example.com"},
		"one that ends so":       {"GET", "/iam/v2beta1/groups", "https://evilconsole.example.com"},
		"over http":              {"GET", "/iam/v2beta1/groups", "http://console.example.com"},
		"another port":           {"GET", "/iam/v2beta1/groups", console + ":8443"},
		"none to speak of":       {"GET", "/iam/v2beta1/groups", "null"},
		"a preflight of another": {"OPTIONS", "/iam/v2beta1/groups", "https://evil.example.com"},
		"the test issuer":        {"POST", "/dev/issuer/token", console},
		"its preflight":          {"OPTIONS", "/dev/issuer/token", console},
		"the account's page":     {"GET", "/account", console},
		"the sign-in":            {"GET", "/oauth?client_id=x", console},
		"the set-up":             {"GET", "/setup", console},
		"the registry":           {"GET", "/v2/", console},
		"metrics":                {"GET", "/metrics", console},
	} {
		got := ask(t, tt.method, r.url+tt.path, "Origin", tt.origin, "Access-Control-Request-Method", "GET")
		for name := range got.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%+v: %v", tt, got.Header)
			}
		}
		if tt.path == "/iam/v2beta1/groups" && got.Header.Get("Vary") != "Origin" {
			t.Errorf("%s: a cache could mix answers up: %v", name, got.Header)
		}
	}
	// A request with two Origin headers is treated as one without an origin.
	if got := ask(t, "GET", r.url+"/openapi.json", "Origin", console, "Origin",
		console); got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("two origins: %v", got.Header)
	}
	if got := ask(t, "POST", r.url+"/oauth/token", "Origin",
		console); got.Header.Get("Access-Control-Allow-Origin") != console {
		t.Errorf("the token endpoint: %d %v", got.StatusCode, got.Header)
	}
	for _, path := range []string{"/iam/v2beta1/groups", "/.well-known/jwks.json", "/oauth/token"} {
		if got := ask(t, "GET", r.url+path, "Origin", console); got.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s allows cookies: %v", path, got.Header)
		}
	}
}

// TestNoCORS: without the setting, no origin is allowed.
func TestNoCORS(t *testing.T) {
	r := start(t, server.Config{})
	got := ask(t, "GET", r.url+"/openapi.json", "Origin", "https://console.example.com")
	if got.Header.Get("Access-Control-Allow-Origin") != "" || strings.Contains(got.Header.Get("Vary"), "Origin") {
		t.Errorf("%v", got.Header)
	}
	for _, path := range []string{"/healthz", "/readyz", "/docs"} {
		if got := ask(t, "POST", r.url+path); got.StatusCode != 405 || got.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d %v", path, got.StatusCode, got.Header)
		}
		if got := ask(t, "HEAD", r.url+path); got.StatusCode != 200 {
			t.Errorf("HEAD %s: %d", path, got.StatusCode)
		}
	}
}
