package server_test

import (
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
)

type devFile struct {
	BaseURL, AuthURL, RegistryHost, OrganizationUID, OwnerUID, Token, RegistryToken, TestIssuer string
}

func readDevFile(t *testing.T, dir string) devFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decode[devFile](t, string(b))
}

// claims reads the claims of a token without verifying it.
func claims(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is not a token", token)
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return decode[map[string]any](t, string(b))
}

func TestDevFile(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{Dev: true, DataDir: dir})
	info, err := os.Stat(filepath.Join(dir, "dev.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("dev.json: %v, %v", info, err)
	}
	got := readDevFile(t, dir)
	owner := resource.UserUID(r.url+"/dev/issuer", "owner")
	for _, want := range []struct{ token, audience string }{{got.Token, r.url}, {got.RegistryToken, r.Addr().String()}} {
		c := claims(t, want.token)
		life := c["exp"].(float64) - c["iat"].(float64)
		if c["aud"] != want.audience || c["sub"] != string(owner) || life != 24*60*60 {
			t.Errorf("claims = %v, want audience %s, subject %s, a day", c, want.audience, owner)
		}
	}
	want := devFile{
		BaseURL: r.url, AuthURL: r.url, RegistryHost: r.Addr().String(), TestIssuer: r.url + "/dev/issuer",
		OrganizationUID: got.OrganizationUID, OwnerUID: string(owner), Token: got.Token, RegistryToken: got.RegistryToken,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	resp, body := r.send(
		t, http.MethodGet, "/iam/v2beta1/groups/"+got.OrganizationUID, "", "Authorization", "Bearer "+got.Token,
	)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"dev"`) {
		t.Errorf("the organization = %d %s", resp.StatusCode, body)
	}
}

func TestDevPrintsACommandThatWorks(t *testing.T) {
	r := start(t, server.Config{Dev: true})
	_, command, ok := strings.Cut(r.stdout.String(), "\n\n")
	if !ok || !strings.HasPrefix(command, "curl ") {
		t.Fatalf("stdout = %s", r.stdout)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("this machine has no curl")
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c",
		strings.Replace(command, "curl ", "curl -sS ", 1)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"name":"dev"`) {
		t.Errorf("the command says %s, %v", out, err)
	}
}

func TestDevOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{Dev: true, DataDir: dir})
	before := readDevFile(t, dir)
	_, keys := r.send(t, http.MethodGet, "/dev/issuer/jwks", "")
	address := r.Addr().String()
	r.stop(t)
	again := start(t, server.Config{Dev: true, DataDir: dir, Listen: address})
	if _, now := again.send(t, http.MethodGet, "/dev/issuer/jwks", ""); now != keys {
		t.Error("the test issuer has another key")
	}
	if after := readDevFile(t, dir); after.OrganizationUID != before.OrganizationUID ||
		after.OwnerUID != before.OwnerUID {
		t.Errorf("the organization is %s, was %s", after.OrganizationUID, before.OrganizationUID)
	}
	resp, body := again.send(t, http.MethodGet, "/iam/v2beta1/groups", "", "Authorization", "Bearer "+before.Token)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the token of before = %d %s", resp.StatusCode, body)
	}
}

func TestDevOnLoopbackOnly(t *testing.T) {
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		_, err := server.New(
			t.Context(), server.Config{Dev: true, Listen: listen, DataDir: t.TempDir(), Stderr: io.Discard},
		)
		if err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("on %s, error = %v", listen, err)
		}
	}
}

// TestAttackDevInPublic: in dev mode, the server does not start with an address that
// other machines can reach, because behind a proxy everybody would be the owner.
func TestAttackDevInPublic(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  server.Config
		want string // name of the setting in the error
	}{
		"a public API":              {server.Config{BaseURL: "https://holdfast.example.com"}, "base_url"},
		"an address of the network": {server.Config{BaseURL: "http://192.168.1.2:8080"}, "base_url"},
		"all addresses":             {server.Config{BaseURL: "http://0.0.0.0:8080"}, "base_url"},
		"a name that looks local":   {server.Config{BaseURL: "http://localhost.example.com"}, "base_url"},
		"one that ends alike":       {server.Config{BaseURL: "http://mylocalhost.example"}, "base_url"},
		"a public issuer":           {server.Config{AuthURL: "https://issuer.example.com"}, "auth_url"},
		"a public registry":         {server.Config{RegistryHost: "registry.example.com:443"}, "registry_host"},
		"nothing":                   {server.Config{}, ""},
		"this machine": {
			server.Config{BaseURL: "http://localhost:8080", AuthURL: "http://127.0.0.1:8080", RegistryHost: "[::1]:8080"}, "",
		},
		"names of this machine": {
			server.Config{BaseURL: "http://api.localhost", AuthURL: "http://Issuer.LOCALHOST", RegistryHost: "registry.test"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dev := range []bool{true, false} {
				cfg := tt.cfg
				cfg.Dev, cfg.Listen, cfg.DataDir, cfg.Stdout, cfg.Stderr = dev, "127.0.0.1:0", t.TempDir(), io.Discard, io.Discard
				s, err := server.New(t.Context(), cfg)
				if err == nil {
					err = s.Close()
				}
				if refused := dev && tt.want != ""; refused != (err != nil) ||
					refused && !strings.HasPrefix(err.Error(), tt.want+": ") {
					t.Errorf("dev %t: error = %v, want one about %q: %t", dev, err, tt.want, refused)
				}
			}
		})
	}
}

// TestDevIssuerByItsOwnNameOnly: the test issuer answers only requests to names of this
// machine. An attacker's name may resolve to this machine, and then a browser would let
// the attacker's pages read the answer.
func TestDevIssuerByItsOwnNameOnly(t *testing.T) {
	r := start(t, server.Config{Dev: true})
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "localhost:8080": 200, "[::1]:80": 200, "127.0.0.1": 200,
		"evil.example": 403, "evil.example:8080": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403,
	} {
		req, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, r.url+"/dev/issuer/token", strings.NewReader(`{"sub":"owner"}`),
		)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q = %d, want %d", host, resp.StatusCode, want)
		}
	}
}

// TestDevIssuerSignsPeopleIn tries an identity provider whose issuer is the test issuer: its page leads to the page
// with the claims of the trial.
func TestDevIssuerSignsPeopleIn(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{Dev: true, DataDir: dir})
	dev := readDevFile(t, dir)
	resp, body := r.send(t, http.MethodPost, "/iam/v2beta1/identityProviders/"+dev.OrganizationUID,
		`{"name":"test","disabled":true,"defaultRole":"`+string(resource.ManagedRoleUID("viewer"))+`","oidc":{"issuer":"`+
			dev.TestIssuer+`","clientId":"any","pkceEnabled":true}}`, "Authorization", "Bearer "+dev.Token)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("create the provider: %d %s", resp.StatusCode, body)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(r *http.Request) string {
		t.Helper()
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", r.URL.Path, resp.StatusCode, page, err)
		}
		return string(page)
	}
	request := func(method, address string, form url.Values) *http.Request {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	provider := decode[struct{ UID string }](t, body).UID
	page := read(request(http.MethodGet, r.url+"/oauth?trial=true&idp_id="+url.QueryEscape(provider), nil))
	_, action, _ := strings.Cut(page, `action="`)
	action, _, ok := strings.Cut(action, `"`)
	if !ok || !strings.Contains(page, "Test sign-in") {
		t.Fatalf("the page of the issuer: %s", page)
	}
	page = read(request(http.MethodPost, html.UnescapeString(action), url.Values{
		"sub": {"ann"}, "email": {"ann@example.com"}, "email_verified": {"true"},
	}))
	if !strings.Contains(page, "ann@example.com") || !strings.Contains(page, "auth_time") {
		t.Errorf("the trial: %s", page)
	}
}
