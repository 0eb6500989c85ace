package server_test

import (
	"bytes"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var onceLink = regexp.MustCompile(`http://\S+/link\?code=[A-Z2-7]{52}`)

// run runs a command and returns its output. A server may be using the data folder.
func run(t *testing.T, cfg server.Config, words ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cfg.Stderr = &bytes.Buffer{}
	err := server.RunCommand(t.Context(), cfg, words, &out)
	return out.String(), err
}

// follow sets a password at a one-time link, and reports whether the client is signed in
// after that.
func (r *running) follow(t *testing.T, link, password string) bool {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	send := func(method, path, form string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	send(http.MethodGet, link[strings.Index(link, "/link"):], "")
	done := send(http.MethodPost, "/link", url.Values{"password": {password}}.Encode())
	return done.StatusCode == http.StatusOK && done.Request.URL.Path == "/account"
}

// TestOwnersRecover: an owner who is locked out can sign in again. If the first link is
// unused, a later start prints a new link. The command owners recover prints a link
// whether or not a server runs.
func TestOwnersRecover(t *testing.T) {
	cfg := server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Organization: "acme", OwnerEmail: "olga@example.com",
	}
	r := start(t, cfg)
	first := onceLink.FindString(r.stderr.String())
	r.stop(t)
	r = start(t, cfg)
	second := onceLink.FindString(r.stderr.String())
	if first == "" || second == "" || first == second {
		t.Fatalf("the first start prints %q and the second %q", first, second)
	}
	if r.follow(t, first, "a password of before") {
		t.Error("the link of the first start works beside that of the second")
	}
	if !r.follow(t, second, "violet anchor seven") {
		t.Fatal("the link of the second start does not work")
	}
	out, err := run(t, cfg, "owners", "recover", "organization=acme")
	if link := onceLink.FindString(out); err != nil || !r.follow(t, link, "another anchor seven") ||
		r.follow(t, link, "a third anchor seven") {
		t.Errorf("beside the server: %v %s", err, out)
	}
	for why, words := range map[string][]string{
		"no organization":      {"owners", "recover"},
		"an unknown one":       {"owners", "recover", "organization=other"},
		"somebody who is none": {"owners", "recover", "organization=acme", "email=eve@example.com"},
		"something else":       {"owners", "recover", "acme"},
	} {
		if out, err := run(t, cfg, words...); err == nil || onceLink.MatchString(out) {
			t.Errorf("%s: %v %s", why, err, out)
		}
	}
	r.stop(t)
	out, err = run(t, cfg, "owners", "recover", "organization=acme", "email=Olga@Example.com")
	link := onceLink.FindString(out)
	if err != nil || link == "" {
		t.Fatalf("alone: %v %s", err, out)
	}
	r = start(t, cfg)
	if onceLink.MatchString(r.stderr.String()) {
		t.Error("a start after the first link was used prints another")
	}
	if !r.follow(t, link, "a fourth anchor seven") {
		t.Error("the link that was made alone does not work")
	}
	if strings.Contains(r.stderr.String(), link) {
		t.Error("the link is in the log")
	}
	r.stop(t)
	made := 0
	for _, e := range events(t, cfg) {
		if e.Type == resource.LinkCreated && e.Actor.Remote == "operator" {
			made++
		}
	}
	if made != 3 { // the second start made one link, and the command made two
		t.Errorf("the audit log has %d links of the operator", made)
	}
}

// TestOwnersRecoverWithoutAnAccount: if the owners of an organization signed in through a
// provider, owners recover can create another owner, who has an account.
func TestOwnersRecoverWithoutAnAccount(t *testing.T) {
	cfg := server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Organization: "acme",
		OwnerIssuer: ownerIssuer, OwnerSubject: ownerSubject,
	}
	r := start(t, cfg)
	if out, err := run(t, cfg, "owners", "recover", "organization=acme"); err == nil {
		t.Errorf("without an address: %s", out)
	}
	out, err := run(t, cfg, "owners", "recover", "organization=acme", "email=olga@example.com")
	if err != nil || !r.follow(t, onceLink.FindString(out), "violet anchor seven") {
		t.Errorf("with an address: %v %s", err, out)
	}
	if out, err = run(t, cfg, "owners", "recover", "organization=acme"); err != nil || !onceLink.MatchString(out) {
		t.Errorf("the new owner: %v %s", err, out)
	}
}

// events returns the events in the outbox of a stopped server.
func events(t *testing.T, cfg server.Config) []resource.Event {
	t.Helper()
	db := storetest.Open(t, filepath.Join(cfg.DataDir, "holdfast.db"))
	all, err := outbox.Read(t.Context(), db.DB, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLostEncryptionKey: if the key file is missing, the server and its commands do not
// start and do not create another key. Only keys reset creates a key, and it lists the
// lost secrets.
func TestLostEncryptionKey(t *testing.T) {
	cfg := server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Organization: "acme", OwnerEmail: "olga@example.com",
	}
	path := filepath.Join(cfg.DataDir, "holdfast.key")
	r := start(t, cfg)
	if out, err := run(t, cfg, "keys", "reset", "lost-encryption-key"); err == nil {
		t.Errorf("beside a server: %s", out)
	}
	r.stop(t)
	if out, err := run(t, cfg, "keys", "reset", "lost-encryption-key"); err == nil ||
		!strings.Contains(err.Error(), "nothing was reset") {
		t.Errorf("with the key: %v %s", err, out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := server.New(t.Context(), func() server.Config { c := cfg; c.Stderr = &bytes.Buffer{}; return c }())
	for what, err := range map[string]error{
		"the server": err,
		"keys list":  func() error { _, err := run(t, cfg, "keys", "list"); return err }(),
		"keys reset": func() error { _, err := run(t, cfg, "keys", "reset"); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "lost-encryption-key") {
			t.Errorf("%s without the key: %v", what, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s makes another key", what)
		}
	}
	out, err := run(t, cfg, "keys", "reset", "lost-encryption-key")
	if err != nil || !strings.Contains(out, "1 signing keys: every issued token is void") {
		t.Fatalf("keys reset: %v %s", err, out)
	}
	r = start(t, cfg)
	link := onceLink.FindString(r.stderr.String())
	if !r.follow(t, link, "violet anchor seven") {
		t.Error("nobody can sign in after the reset")
	}
	if resp, body := r.send(t, http.MethodGet, "/.well-known/jwks.json", ""); strings.Count(body, `"kty":"EC"`) != 1 {
		t.Errorf("the keys are %d %s", resp.StatusCode, body)
	}
	unrelated := server.Config{DataDir: filepath.Join(t.TempDir(), "none"), Listen: "127.0.0.1:0"}
	if _, err := run(t, unrelated, "keys", "reset", "lost-encryption-key"); err == nil ||
		!strings.Contains(err.Error(), "there is no database") {
		t.Errorf("a folder without a database: %v", err)
	}
	if _, err := os.Stat(unrelated.DataDir); err == nil {
		t.Error("keys reset makes a data folder")
	}
}

// TestKeysResetBesideAServer: on both engines, keys reset does nothing while a server
// runs, because that server has the key.
func TestKeysResetBesideAServer(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		cfg := server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Database: url}
		start(t, cfg)
		cfg.EncryptionKey = secret.NewKey().Text() // not the key of the server
		if out, err := run(t, cfg, "keys", "reset", "lost-encryption-key"); err == nil {
			t.Errorf("beside a server: %s", out)
		}
	})
}
