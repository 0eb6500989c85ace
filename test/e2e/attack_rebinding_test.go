package e2e_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound/outboundtest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// The addresses of the host that an attacker's name server names.
const (
	publicHost  = "127.0.0.2" // the operator has allowed it
	privateHost = "127.0.0.1"
)

// An attackerHost is a host whose name resolves to a public address until the attacker changes that. It serves a
// receiver of events, a registry, a feed and an issuer. A private service with the same certificate runs at the same
// port of the private address.
type attackerHost struct {
	address string // https:// and host:port, with the name of the host

	mu       sync.Mutex
	answers  []string // addresses that the name server returns
	moveAt   string   // a request whose path contains this text makes the name resolve to the private address
	redirect bool     // whether blobs are redirected to another path of the same host
	realm    bool     // whether the registry requires a token of its token service
	received []string // paths of requests at the public address
	private  []string // paths of requests at the private address
}

const hostManifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":` +
	`{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},"layers":[]}`

func newAttackerHost(t *testing.T) (*attackerHost, server.Config) {
	t.Helper()
	h := &attackerHost{answers: []string{publicHost}}
	public := outboundtest.Serve(t, publicHost+":0", http.HandlerFunc(h.public))
	port := public.Listener.Addr().(*net.TCPAddr).Port
	outboundtest.Serve(t, net.JoinHostPort(privateHost, strconv.Itoa(port)), http.HandlerFunc(h.secret))
	h.address = fmt.Sprintf("https://example.com:%d", port)
	outboundtest.NameServer(t, func() []string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.answers
	})
	return h, server.Config{
		OutboundCAFile: certificateFile(t, public), OutboundAllow: []netip.Prefix{netip.MustParsePrefix(publicHost + "/32")},
	}
}

// certificateFile returns a file with the certificate of a server.
func certificateFile(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// secret serves the private service. Each request to it is a successful attack.
func (h *attackerHost) secret(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.private = append(h.private, r.Method+" "+r.URL.Path)
	h.mu.Unlock()
	fmt.Fprint(w, "{}")
}

// public serves the attacker's services. It closes each connection, so that the name is resolved for each request.
func (h *attackerHost) public(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received = append(h.received, r.URL.Path)
	if h.moveAt != "" && strings.Contains(r.URL.Path, h.moveAt) {
		h.answers = []string{privateHost}
	}
	w.Header().Set("Connection", "close")
	config := []byte("{}")
	switch path := r.URL.Path; {
	case path == "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%[1]s/keys","authorization_endpoint":"%[1]s/authorize",`+
			`"token_endpoint":"%[1]s/token","response_types_supported":["code"]}`, h.address)
	case path == "/keys":
		fmt.Fprint(w, `{"keys":[]}`)
	case path == "/token":
		fmt.Fprint(w, `{"token":"t"}`)
	case strings.HasPrefix(path, "/v2/") && h.realm && r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+h.address+`/token",service="s",scope="repository:app:pull"`)
		w.WriteHeader(http.StatusUnauthorized)
	case strings.Contains(path, "/manifests/"):
		w.Header().Set("Content-Type", manifestType)
		fmt.Fprintf(w, hostManifest, ociDigest(config))
	case strings.Contains(path, "/blobs/") && h.redirect:
		http.Redirect(w, r, h.address+"/elsewhere", http.StatusTemporaryRedirect)
	case strings.Contains(path, "/blobs/"), path == "/elsewhere":
		_, _ = w.Write(config)
	}
}

// resolve makes the name resolve to other addresses, and removes the recorded requests. Later requests with moveAt in
// their path make it resolve to the private address.
func (h *attackerHost) resolve(moveAt string, answers ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers, h.moveAt, h.received = answers, moveAt, nil
}

// requests returns the number of requests with this path that the public address has received since the last resolve.
func (h *attackerHost) requests(path string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.received {
		if p == path {
			n++
		}
	}
	return n
}

// noCloud is an address at which there is no cloud.
const noCloud = "https://127.0.0.1:1"

// serveProduction is serve, but the server is not in dev mode, which allows requests to this machine.
func serveProduction(t *testing.T, database string, cfg server.Config) *world {
	t.Helper()
	w := serve(t, database, cfg, nil)
	w.stop()
	prod := w.config
	prod.Dev, prod.BaseURL, prod.RegistryHost = false, w.BaseURL, w.RegistryHost
	prod.AWSEndpoint, prod.GoogleEndpoint, prod.AzureEndpoint = noCloud, noCloud, noCloud
	prod.Listen = strings.TrimPrefix(w.BaseURL, "http://")
	w.run(t, prod)
	w.conn = w.dial(t, insecure.NewCredentials())
	return w
}

// TestAttackChangingNames lets the owner of an organization use a host whose name resolves first to a public address,
// and then to a private one: for events, for an upstream and the redirects and tokens of that upstream, for feeds and
// for identity providers. The private service must not get a request. Without the change, everything works.
//
// The test is not parallel, because it changes the name server of the whole process.
func TestAttackChangingNames(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		h, cfg := newAttackerHost(t)
		w := serveProduction(t, url, cfg)
		org := string(w.Organization)
		sub := w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+h.address+`/hook"}`)
		for _, tt := range []struct {
			name    string
			answers []string
			works   bool
		}{
			{"a name that stays", []string{publicHost}, true},
			{"a name that moves", []string{privateHost}, false},
			{"a name with both addresses", []string{privateHost, publicHost}, true},
		} {
			h.resolve("", tt.answers...)
			got := must[*deliveriespb.TestSubscriptionResponse](t, w.overGRPC, w.Token,
				&deliveriespb.TestSubscriptionRequest{Uid: sub})
			if (got.GetError() == "") != tt.works || strings.Contains(got.GetError(), "127.") {
				t.Errorf("an event to %s: %v", tt.name, got)
			}
		}
		h.pulls(t, w, org)
		h.providers(t, w, org)
		h.resolve("/list.json", publicHost)
		w.feed(t, org, "list", h.address+"/list.json")
		procUntil(t, "the feed is fetched", func() bool { return h.requests("/list.json") > 0 })
		feed := w.feed(t, org, "other", h.address+"/other.json")
		procUntil(t, "the other feed fails", func() bool {
			return strings.Contains(w.send(t, w.Token, "GET", "/advisories/v1/feeds/"+feed, "").body, "cannot be reached")
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.private) > 0 {
			t.Errorf("the private service got %q", h.private)
		}
	})
}

// retried calls f until it returns "", at most five times, and fails with its last result. A lookup of the name
// that began before it moved, or a connection from then, may still be used; only a request to the private service is
// an attack that succeeded.
func retried(t *testing.T, f func(try int) string) {
	t.Helper()
	difference := ""
	for try := range 5 {
		if difference = f(try); difference == "" {
			return
		}
	}
	t.Error(difference)
}

// pulls pulls through upstreams whose name moves at different times.
func (h *attackerHost) pulls(t *testing.T, w *world, org string) {
	t.Helper()
	for i, tt := range []struct {
		name            string
		moveAt          string
		answers         string
		redirect, realm bool
		manifest        int  // status of the answer
		blob            bool // whether the blob is served
	}{
		{"stays", "", publicHost, false, false, 200, true},
		{"stays, with redirects and tokens", "", publicHost, true, true, 200, true},
		{"has moved", "", privateHost, false, false, 502, false},
		{"moves after the manifest", "/manifests/", publicHost, false, false, 200, false},
		{"moves before a redirect is followed", "/blobs/", publicHost, true, false, 200, false},
		{"moves before a token is requested", "/v2/", publicHost, false, true, 502, false},
	} {
		retried(t, func(try int) string {
			name := fmt.Sprintf("mirror%d-%d", i, try)
			group := w.child(t, org, name)
			must[*ocipb.Upstream](t, w.overGRPC, w.Token, &ocipb.CreateUpstreamRequest{
				Parent: group, Upstream: &ocipb.Upstream{Name: "far", Address: h.address},
			})
			h.mu.Lock()
			h.redirect, h.realm = tt.redirect, tt.realm
			h.mu.Unlock()
			// Each image has a name of its own, because the server may still repeat a request for the one before.
			app, moveAt := fmt.Sprintf("/app%d-%d", i, try), tt.moveAt
			if moveAt == "/manifests/" || moveAt == "/blobs/" {
				moveAt = app + moveAt
			}
			h.resolve(moveAt, tt.answers)
			repo := "/v2/dev/" + name + app
			manifest := w.send(t, w.RegistryToken, "GET", repo+"/manifests/v1", "")
			blob := w.send(t, w.RegistryToken, "GET", repo+"/blobs/"+ociDigest([]byte("{}")), "")
			if strings.Contains(manifest.body+blob.body, "127.0.0") {
				t.Errorf("an upstream whose name %s: the answers contain an address: %s %s", tt.name, manifest.body, blob.body)
			}
			if manifest.status != tt.manifest || (blob.status == http.StatusOK) != tt.blob {
				return fmt.Sprintf("an upstream whose name %s: %d %s, %d %s",
					tt.name, manifest.status, manifest.body, blob.status, blob.body)
			}
			return ""
		})
	}
}

// providers tests identity providers whose name moves before or after the discovery.
func (h *attackerHost) providers(t *testing.T, w *world, org string) {
	t.Helper()
	p := provider("p")
	p.GetOidc().Issuer = h.address
	for _, tt := range []struct {
		name, moveAt, answer string
		reached              bool // whether the public address gets a request on a new connection
	}{
		{"stays", "", publicHost, true},
		{"has moved", "", privateHost, false},
		{"moves after the discovery", "/.well-known/", publicHost, true},
	} {
		retried(t, func(int) string {
			h.resolve(tt.moveAt, tt.answer)
			got := must[*signinpb.TestIdentityProviderResponse](t, w.overGRPC, w.Token, &signinpb.TestIdentityProviderRequest{
				Parent: org, IdentityProvider: p,
			})
			// One request may use a connection that was opened before the name moved.
			n := h.requests("/.well-known/openid-configuration") + h.requests("/keys")
			if tt.reached && n == 0 || !tt.reached && n > 1 {
				return fmt.Sprintf("a provider whose name %s: %d requests, %v", tt.name, n, got)
			}
			return ""
		})
	}
}
