package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A reverseProxy adds the header X-Forwarded-For to requests. The last address in it is the real client. The
// addresses before it were made up by the client.
type reverseProxy struct{ forwarded string }

func (p *reverseProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Forwarded-For", p.forwarded)
	return http.DefaultTransport.RoundTrip(r)
}

func (p *reverseProxy) intercept(
	ctx context.Context, method string, in, out any, conn *grpc.ClientConn, next grpc.UnaryInvoker,
	more ...grpc.CallOption,
) error {
	return next(metadata.AppendToOutgoingContext(ctx, "x-forwarded-for", p.forwarded), method, in, out, conn, more...)
}

// TestBehindProxy sends requests through a reverse proxy that the operator trusts or does not trust. Every part of
// the server must see the same client address.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trusted config.Prefixes
		from    string // the client address that the server must see
	}{
		"trusted":     {config.Prefixes{netip.MustParsePrefix("127.0.0.0/8")}, "203.0.113.9"},
		"not trusted": {nil, "127.0.0.1"},
		"another is":  {config.Prefixes{netip.MustParsePrefix("10.0.0.0/8")}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, storetest.SQLite(t), server.Config{TrustedProxies: tt.trusted}, nil)
			proxy := &reverseProxy{"198.51.100.66, 203.0.113.9"}
			w.client.Transport = proxy
			w.conn = w.dial(t, insecure.NewCredentials(), grpc.WithUnaryInterceptor(proxy.intercept))
			for protocol, call := range w.protocols() {
				g := must[*iampb.Group](t, call, w.Token,
					&iampb.CreateGroupRequest{Parent: string(w.Organization), Group: &iampb.Group{Name: strings.ToLower(protocol)}})
				log := must[*auditpb.ListEntriesResponse](t, call, w.Token,
					&auditpb.ListEntriesRequest{Subject: g.GetUid()}).GetEntries()
				if len(log) != 1 || log[0].GetActor().GetRemoteAddress() != tt.from {
					t.Errorf("over %s the audit log has the address %v, want %s", protocol, log, tt.from)
				}
			}
			w.repo(t, string(w.Organization), "app")
			w.pushImage(t, "dev/app", "1", "amd64", "layer")
			w.pull(t, w.RegistryToken, "dev/app", "1")
			var pulls []*ocipb.Pull
			procUntil(t, "a push and a pull", func() bool {
				pulls = must[*ocipb.ListPullsResponse](t, w.overGRPC, w.Token, &ocipb.ListPullsRequest{}).GetPulls()
				return len(pulls) == 2
			})
			for _, p := range pulls {
				if p.GetRemoteAddress() != tt.from {
					t.Errorf("the registry recorded the address %v, want %s", p, tt.from)
				}
			}
			w.signsInWithPassword(t)
			for _, n := range must[*signinpb.ListSessionsResponse](t, w.overGRPC, w.Token,
				&signinpb.ListSessionsRequest{}).GetSessions() {
				if n.GetBrowser() && n.GetAddress() != tt.from {
					t.Errorf("the session has the address %v, want %s", n, tt.from)
				}
			}
			w.limitsAddresses(t, proxy, tt.from != "127.0.0.1")
		})
	}
}

// signsInWithPassword signs the owner in on the sign-in pages, with the password.
func (w *world) signsInWithPassword(t *testing.T) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &world{BaseURL: w.BaseURL, client: &http.Client{Transport: w.client.Transport, Jar: jar}}
	page := browser.send(t, "", http.MethodGet, "/signin", "")
	_, rest, _ := strings.Cut(page.body, `name="flow" value="`)
	flow, _, _ := strings.Cut(rest, `"`)
	if got := browser.form(t, "/signin/password",
		url.Values{
			"flow": {flow}, "email": {w.OwnerEmail}, "password": {w.OwnerPassword},
		}); !strings.Contains(got.body, "Your account") {
		t.Fatalf("signing in: %d\n%s", got.status, got.body)
	}
}

// form sends a form with these fields and returns the response.
func (w *world) form(t *testing.T, target string, fields url.Values) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.BaseURL+target,
		strings.NewReader(fields.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.roundTrip(t, r)
}

// limitsAddresses requests device codes until the limit for the client address is reached, whatever address the
// client claims. Then it sends a request as another client, which must not be limited if the proxy is trusted.
func (w *world) limitsAddresses(t *testing.T, proxy *reverseProxy, trusted bool) {
	t.Helper()
	ask := func() int {
		return w.form(t, "/oauth/device_authorization", url.Values{"client_id": {"tv"}}).status
	}
	last := 0
	for i := range 61 {
		proxy.forwarded = fmt.Sprintf("198.51.100.%d, 203.0.113.9", i)
		last = ask()
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("a client with invented addresses exceeds the limit: status %d", last)
	}
	proxy.forwarded = "203.0.113.10"
	if got := ask() == http.StatusOK; got != trusted {
		t.Errorf("another client is not limited: %v, want %v", got, trusted)
	}
}
