package login_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/argon2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	ownerEmail = "owner@example.test"
	password   = "correct horse battery"
	callback   = "http://127.0.0.1:7777/callback?token=true&error=true"
)

// A clock shows the same time until a test moves it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A site is a service with an organization whose owner has an account.
type site struct {
	*login.Service
	*admin
	url     string
	store   *storetest.Store
	checker *authz.Checker
	issuer  *token.Issuer
	sts     *sts.Service
	clock   *clock
	org     resource.Group
	owner   resource.Account
	logs    *syncBuffer
	key     secret.Key
	metrics *prometheus.Registry

	refusals *denials.Recorder // writes its records when a test flushes it
}

func (x *site) sealed(secret string) []byte { return x.key.Seal("client secret", []byte(secret)) }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// An admin manages accounts.
type admin = accounts.Service

func newAdmin(db *store.DB, checker *authz.Checker, key secret.Key, c *clock, cfg login.Config) *admin {
	return accounts.New(db, checker, page.NewTokens(key.Derive("pages"), c.now), accounts.Config{
		Issuer: cfg.Issuer, Mail: cfg.Mail, Log: cfg.Log, Now: c.now,
	})
}

func open(t *testing.T, s *storetest.Store, change ...func(*login.Config)) *site {
	t.Helper()
	c := &clock{at: time.Now()}
	s.Now = c.now
	if err := s.SetManagedRoles(t.Context(), authz.ManagedRoles()); err != nil {
		t.Fatal(err)
	}
	logs := &syncBuffer{}
	log := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	checker := must[*authz.Checker](t)(authz.Load(t.Context(), s.DB, log))
	front := httptest.NewUnstartedServer(nil)
	// Passkeys need a host name.
	address := strings.Replace("http://"+front.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
	key, metrics := secret.NewKey(), prometheus.NewRegistry()
	client := outbound.Client(outbound.Config{Loopback: true})
	issuer := must[*token.Issuer](t)(token.New(t.Context(), s.DB, token.Config{Issuer: address, Key: key, Now: c.now}))
	issuers := must[*issuers.Issuers](t)(issuers.New(issuers.Config{Client: client, Now: c.now}))
	exchange := sts.New(
		s.DB, checker, issuer, issuers, sts.Config{BaseURL: address, RegistryHost: "registry.test", Log: log, Now: c.now},
	)
	refusals := denials.New(s.DB, log)
	cfg := login.Config{
		Issuer: address, BaseURL: address, Key: key, Client: client, Log: log, Now: c.now,
		Metrics: metric.New(metrics, nil), Refusals: refusals,
	}
	for _, f := range change {
		f(&cfg)
	}
	managed := newAdmin(s.DB, checker, key, c, cfg)
	svc := must[*login.Service](t)(login.New(s.DB, checker, exchange, managed, cfg))
	front.Config.Handler = svc.Handler()
	front.Start()
	t.Cleanup(front.Close)
	x := &site{
		Service: svc, admin: managed, url: address, store: s, checker: checker, issuer: issuer, sts: exchange, clock: c,
		logs: logs,
		key:  key, metrics: metrics, refusals: refusals,
	}
	// A hash contains its parameters. This one has cheap parameters.
	salt := []byte("0123456789abcdef")
	enc := base64.RawStdEncoding.EncodeToString
	hash := "$argon2id$v=19$m=64,t=1,p=1$" + enc(salt) + "$" + enc(argon2.IDKey([]byte(password), salt, 1, 64, 1, 32))
	var err error
	if x.org, x.owner, _, err = managed.CreateOrganization(t.Context(), "acme", resource.OrgUnspecified,
		resource.Account{Email: ownerEmail, Name: "Olga Owner", Password: hash}); err != nil {
		t.Fatal(err)
	}
	return x
}

// sqlite returns a site for tests that do not depend on the database.
func sqlite(t *testing.T) *site {
	t.Helper()
	return open(t, storetest.Open(t, storetest.SQLite(t)))
}

// each runs f with a site on each engine.
func each(t *testing.T, f func(t *testing.T, x *site)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) { f(t, open(t, s)) })
}

// story runs f with a site on the engines that storetest.Story chooses.
func story(t *testing.T, f func(t *testing.T, x *site)) {
	t.Helper()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) { f(t, open(t, s)) })
}

// A browser stores cookies and does not follow redirects.
type browser struct {
	*http.Client
	t *testing.T
	x *site
}

func (x *site) browser(t *testing.T) *browser {
	jar := must[*cookiejar.Jar](t)(cookiejar.New(nil))
	return &browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, t, x}
}

// An answer is a response to a browser.
type answer struct {
	status   int
	body     string
	location string
	header   http.Header
}

func (b *browser) do(method, target string, form url.Values, headers ...string) answer {
	b.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = b.x.url + target
	}
	r := must[*http.Request](b.t)(
		http.NewRequestWithContext(b.t.Context(), method, target, strings.NewReader(form.Encode())),
	)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return b.send(r)
}

func (b *browser) send(r *http.Request) answer {
	b.t.Helper()
	resp := must[*http.Response](b.t)(b.Do(r))
	defer resp.Body.Close()
	body := must[[]byte](b.t)(io.ReadAll(resp.Body))
	return answer{resp.StatusCode, string(body), resp.Header.Get("Location"), resp.Header}
}

func (b *browser) get(target string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, target, nil)
}

// post sends a form of names and values.
func (b *browser) post(target string, fields ...string) answer {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.do(http.MethodPost, target, form)
}

// start starts a sign-in and returns its flow.
func (b *browser) start(query string) string {
	b.t.Helper()
	a := b.get("/oauth?" + query)
	_, flow, ok := strings.Cut(a.location, "flow=")
	if !ok {
		b.t.Fatalf("no sign-in began: %d %s\n%s", a.status, a.location, a.body)
	}
	return flow
}

// forCommand returns the query of a program that listens on this computer.
func forCommand(more string) string {
	return "exit=redirect&client_id=test&redirect=" + url.QueryEscape(callback) + more
}

func (b *browser) password(flow, email, word string) answer {
	b.t.Helper()
	return b.post("/signin/password", "flow", flow, "email", email, "password", word)
}

// signIn gives the browser a session of the owner.
func (b *browser) signIn() {
	b.t.Helper()
	a := b.get("/signin")
	_, flow, _ := strings.Cut(a.location, "flow=")
	if a = b.password(flow, ownerEmail, password); a.location != "/account" {
		b.t.Fatalf("signing in led to %d %s\n%s", a.status, a.location, a.body)
	}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (b *browser) csrf() string {
	b.t.Helper()
	m := csrfField.FindStringSubmatch(b.get("/account").body)
	if m == nil {
		b.t.Fatal("the account page has no form")
	}
	return m[1]
}

// allow gives consent on the consent page.
func (b *browser) allow(flow string) answer {
	b.t.Helper()
	csrf := ""
	if m := csrfField.FindStringSubmatch(b.get("/account").body); m != nil {
		csrf = m[1]
	}
	return b.post("/signin/confirm", "flow", flow, "csrf", csrf, "answer", "allow")
}

func query(t *testing.T, address string) url.Values {
	t.Helper()
	return must[*url.URL](t)(url.Parse(address)).Query()
}

// caller verifies a token that we issued, and returns its caller.
func (x *site) caller(t *testing.T, raw string) authz.Caller {
	t.Helper()
	return must[authz.Caller](t)(x.issuer.Verify(t.Context(), raw, x.url))
}

// A provider is an OpenID provider that tests control.
type provider struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	mu      sync.Mutex
	claims  map[string]any    // additional claims of ID tokens
	info    map[string]any    // claims of the userinfo endpoint
	codes   map[string]string // nonce of the request, by code
	proofs  map[string]string // PKCE challenge, by code
	back    map[string]string // redirect URI, by code
	lax     bool              // whether the provider ignores PKCE challenges
	issNote bool              // whether the provider identifies itself in responses (iss)
	seen    []string          // codes that were presented to the token endpoint
}

func newProvider(t *testing.T) *provider {
	p := &provider{
		key: must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), codes: map[string]string{},
		proofs: map[string]string{}, back: map[string]string{}, info: map[string]any{"sub": "pat"},
		claims: map[string]any{"sub": "pat", "email": "pat@example.test", "email_verified": true, "name": "Pat"},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"jwks_uri":          p.URL + "/keys",
			"userinfo_endpoint": p.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256"},
			"response_types_supported": []string{"code"}, "authorization_response_iss_parameter_supported": p.issNote,
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		k := p.key.PublicKey
		b := must[[]byte](t)(k.Bytes())
		enc := base64.RawURLEncoding.EncodeToString
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "k", "use": "sig", "x": enc(b[1:33]), "y": enc(b[33:]),
		}}})
	})
	mux.HandleFunc("/token", p.token)
	mux.HandleFunc("/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.info)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(why string) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
	}
	if id, secret, _ := r.BasicAuth(); id+r.FormValue("client_id") != "client" ||
		secret+r.FormValue("client_secret") != "hush-hush" {
		refuse("invalid_client")
		return
	}
	code := r.FormValue("code")
	p.seen = append(p.seen, code)
	nonce, ok := p.codes[code]
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || p.back[code] != r.FormValue("redirect_uri") || !p.lax &&
		p.proofs[code] != base64.RawURLEncoding.EncodeToString(sum[:]) {
		refuse("invalid_grant")
		return
	}
	claims := map[string]any{
		"iss": p.URL, "aud": "client", "nonce": nonce, "iat": time.Now().Unix(),
		"exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, p.claims)
	_ = json.NewEncoder(w).Encode(
		map[string]any{"access_token": "upstream-token", "token_type": "Bearer", "id_token": p.sign(claims)},
	)
}

func (p *provider) sign(claims map[string]any) string {
	body, _ := json.Marshal(claims)
	enc := base64.RawURLEncoding.EncodeToString
	text := enc([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + enc(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + enc(signature)
}

// answerTo returns the address to which the provider redirects the browser after an
// authorization request. It contains a code.
func (p *provider) answerTo(t *testing.T, question string) string {
	t.Helper()
	q := query(t, question)
	code := rand.Text()
	p.mu.Lock()
	p.codes[code], p.proofs[code], p.back[code] = q.Get("nonce"), q.Get("code_challenge"), q.Get("redirect_uri")
	p.mu.Unlock()
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if p.issNote {
		back.Set("iss", p.URL)
	}
	return q.Get("redirect_uri") + "?" + back.Encode()
}

// keep stores the provider in the organization.
func (x *site) keep(t *testing.T, p *provider, change ...func(*resource.IdentityProvider)) resource.IdentityProvider {
	t.Helper()
	idp := resource.IdentityProvider{
		UID: x.org.UID.NewChild(), Name: "idp", DefaultRole: resource.ManagedRoleUID("viewer"), CreateTime: x.clock.now(),
		UpdateTime: x.clock.now(),
		OIDC: &resource.OIDC{
			Issuer: p.URL, ClientID: "client", GroupsClaim: "groups", PKCE: true,
			ClientSecret: resource.Secret{Sealed: x.sealed("hush-hush")},
		},
	}
	for _, f := range change {
		f(&idp)
	}
	idp.Realm = idp.OwnRealm()
	if err := x.store.InsertProvider(t.Context(), idp); err != nil {
		t.Fatal(err)
	}
	return idp
}
