package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/fetch"
)

const (
	audience = "https://api.example.com"
	domain   = "iam.api.example.com"
	maxBody  = 1 << 16

	registryHost = "registry.example.com"
)

// A world is a whole service with one organization and its owner.
type world struct {
	org   resource.UID
	owner resource.Identity
	token string // token of the owner
	mint  func(token.Claims) string
	url   string           // address of the JSON API
	conn  *grpc.ClientConn // connection to the gRPC API
	now   time.Time
	store *storetest.Store
	key   secret.Key // key with which secrets are sealed
	log   journal
}

// A journal collects the lines that the server logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, storetest.Open(t, storetest.SQLite(t)))
}

func newWorldOn(t *testing.T, s *storetest.Store) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{now: time.Now(), store: s, key: secret.NewKey()}
	now, key := func() time.Time { return w.now }, w.key
	must(t, s.SetManagedRoles(ctx, authz.ManagedRoles()))
	checker := check(authz.Load(ctx, s.DB, slog.New(slog.DiscardHandler)))(t)
	issuer := check(token.New(ctx, s.DB, token.Config{Issuer: "https://auth.example.com", Key: key, Now: now}))(t)
	pages := page.NewTokens(key.Derive("page tokens"), now)
	svc := iam.New(s.DB, checker, pages, iam.Config{Key: key, Now: now})
	reg := assembly.New(s.DB, checker, issuer, nil, assembly.Config{Host: registryHost, Now: now}).Metadata(pages)
	org, owner, err := svc.Bootstrap(ctx, "acme", resource.OrgDev, resource.Identity{
		Name: "owner",
		Relationship: resource.Relationship{
			ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.example.com", Subject: "owner"},
		},
	})
	must(t, err)
	w.org, w.owner = org.UID, owner
	w.mint = func(c token.Claims) string { return check(issuer.Mint(ctx, c))(t) }
	w.token = w.mint(token.Claims{Subject: owner.UID, Audience: []string{audience}, Life: time.Hour})
	log := slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	issuers := check(issuers.New(issuers.Config{Now: now}))(t)
	exchange := sts.New(s.DB, checker, issuer, issuers,
		sts.Config{
			BaseURL: audience, RegistryHost: "registry.example.com", AWS: sts.AWS{Endpoint: "https://127.0.0.1:1"}, Now: now,
		})
	adv := advisory.New(advisorydb.New(s.DB), checker, page.NewTokens(key.Derive("page tokens"), now),
		advisory.Config{Fetcher: fetch.New(fetch.Config{Folders: []string{"/srv/feeds"}}), Now: now})
	simulations := simulation.New(s.DB, checker, svc, simulation.Config{Now: now})
	services := api.Services{
		IAM: svc, Simulation: simulations, Registry: reg, STS: exchange, Advisory: adv,
		Directories: scim.New(s.DB, checker, scim.Config{BaseURL: "https://here.test", Log: log, Now: now}),
	}
	a := api.New(services, issuer, checker,
		api.Config{Audience: audience, Domain: domain, Log: log, MaxBody: maxBody, Version: "v1.2.3"})
	w.serve(t, a)
	return w
}

func (w *world) serve(t *testing.T, a *api.API) {
	t.Helper()
	h := httptest.NewServer(a.HTTP())
	t.Cleanup(h.Close)
	w.url = h.URL
	l := bufconn.Listen(1 << 20)
	g := a.GRPC(100)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		g.Stop()
		serving.Wait()
	})
	w.conn = check(grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })))(t)
	t.Cleanup(func() { w.conn.Close() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check makes a call that returns a value and an error usable in an expression. The test
// fails if there is an error.
func check[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// An answer is a response over HTTP.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any // nil if the body is empty
}

// field returns a member of the answer by its dotted path.
func (a answer) field(path string) any {
	var v any = a.json
	for k := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

// violations returns the names of the fields that the answer reports as invalid.
func (a answer) violations() []string {
	var all []string
	details, _ := a.json["details"].([]any)
	for _, d := range details {
		violations, _ := d.(map[string]any)["fieldViolations"].([]any)
		for _, v := range violations {
			f, _ := v.(map[string]any)["field"].(string)
			all = append(all, f)
		}
	}
	return all
}

// do sends a request as the owner. request is a method and a path.
func (w *world) do(t *testing.T, request, body string, header ...string) answer {
	t.Helper()
	verb, path, _ := strings.Cut(request, " ")
	r := check(http.NewRequestWithContext(t.Context(), verb, w.url+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+w.token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	resp := check(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	b := check(io.ReadAll(resp.Body))(t)
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(b)}
	if len(b) > 0 {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&a.json); err != nil {
			t.Fatalf("%s answered %q: %v", request, b, err)
		}
	}
	return a
}

// ctx returns a context for calls over gRPC with the owner's token.
func (w *world) ctx(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+w.token)
}
