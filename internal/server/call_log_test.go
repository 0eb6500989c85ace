package server_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
)

// logged returns the lines that the log has about calls of a method.
func logged(t *testing.T, r *running, method string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(r.stderr.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && strings.HasSuffix(str(fields["method"]), "/"+method) {
			lines = append(lines, fields)
		}
	}
	return lines
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// TestCallLog: the log has the method, the result, the reason and the caller of each
// call, including exchanges. Polling for a sign-in does not fill the log.
func TestCallLog(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{Dev: true, DataDir: dir})
	dev := readDevFile(t, dir)
	bearer := []string{"Authorization", "Bearer " + dev.Token}
	ask(t, "PATCH", r.url+"/iam/v2beta1/groups/"+string(resource.NewRoot()), bearer...)
	ask(t, "GET", r.url+"/sts/exchange?aud="+url.QueryEscape(r.url), bearer...)
	ask(t, "GET", r.url+"/sts/exchange?aud="+url.QueryEscape(r.url)+"&identity="+dev.OwnerUID, bearer...)
	for _, want := range []struct {
		method string
		line   int
		fields map[string]string
	}{
		{
			"UpdateGroup", 0,
			map[string]string{"code": "PERMISSION_DENIED", "caller": dev.OwnerUID, "reason": "groups.update on"},
		},
		{"Exchange", 0, map[string]string{"code": "OK", "caller": dev.OwnerUID}},
		{"Exchange", 1, map[string]string{"code": "PERMISSION_DENIED", "identity": dev.OwnerUID, "reason": `invalid "iss"`}},
	} {
		lines := logged(t, r, want.method)
		if len(lines) <= want.line {
			t.Fatalf("%d lines about %s: %s", len(lines), want.method, r.stderr)
		}
		for name, value := range want.fields {
			if got := str(lines[want.line][name]); got == "" || !strings.Contains(got, value) {
				t.Errorf("%s of %s is %q, want %q", name, want.method, got, value)
			}
		}
	}
	if who := logged(t, r, "Exchange")[1]["caller"]; who != "" {
		t.Errorf("a refused exchange has the caller %v", who)
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	waiting := ask(t, "GET", r.url+"/sts/headless_sessions?code="+base64.RawURLEncoding.EncodeToString(key))
	if lines := logged(t, r, "GetHeadlessSession"); waiting.StatusCode != 404 || len(lines) != 0 {
		t.Errorf("one who waits: %d, %v", waiting.StatusCode, lines)
	}
	if strings.Contains(r.stderr.String(), dev.Token) {
		t.Error("the log has a token")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil ||
		!strings.Contains(string(metrics), `code="PERMISSION_DENIED",method="holdfast.oidc.SecurityTokenService/Exchange"`) {
		t.Errorf("the metrics do not name codes: %v", err)
	}
}

// TestDevBanner: in dev mode, the server prints the addresses and the credentials with
// which a developer can start, in a browser or with curl.
func TestDevBanner(t *testing.T) {
	r := start(t, server.Config{Dev: true})
	for _, want := range []string{
		r.url + "/console/", "organization dev, owner@dev.example, password ", r.url + "/docs", "curl -H",
	} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the banner does not say %q: %s", want, r.stdout)
		}
	}
}

// TestPlaintextWarning: the server warns if, according to the settings, traffic is not
// encrypted on the network.
func TestPlaintextWarning(t *testing.T) {
	const warning = "unencrypted"
	for name, tt := range map[string]struct {
		cfg  server.Config
		want bool
	}{
		"every address":               {server.Config{Listen: "0.0.0.0:0"}, true},
		"every address, of IPv6":      {server.Config{Listen: ":0"}, true},
		"every address, an http name": {server.Config{Listen: "0.0.0.0:0", BaseURL: "http://holdfast.example.com"}, true},
		"a proxy with TLS":            {server.Config{Listen: "0.0.0.0:0", BaseURL: "https://holdfast.example.com"}, false},
		"this machine":                {server.Config{Listen: "127.0.0.1:0"}, false},
		"this machine, by its name":   {server.Config{Listen: "localhost:0"}, false},
	} {
		r := start(t, tt.cfg)
		if got := strings.Contains(r.stderr.String(), warning); got != tt.want {
			t.Errorf("%s: warned %v, want %v", name, got, tt.want)
		}
		r.cancel()
	}
}
