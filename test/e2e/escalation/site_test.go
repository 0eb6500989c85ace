package escalation_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	address      = "https://holdfast.test" // address of the service's issuer and API
	registryHost = "registry.test"
	callback     = "http://127.0.0.1:7777/callback" // address at which the command-line program waits for its token
	password     = "correct horse battery"
)

// A site contains the services that decide about access, over a store. They are assembled as in package server. The
// test answers their requests to other issuers without a network, and calls the sign-in pages without a listener.
type site struct {
	store   *storetest.Store
	checker *authz.Checker
	issuer  *token.Issuer
	sts     *sts.Service
	iam     *iam.Service
	login   *login.Service
	people  *accounts.Service
	pages   http.Handler
	others  *identityProviders
	clock   atomic.Int64 // current time in seconds; every move takes one second
	worlds  int
	counts  [2]map[string]int // number of accepted moves by kind, for each side
	lost    int               // number of requests whose actor lost access while they were in flight

	interruption func() // called once before the next write that relies on an access; nil for no interruption
}

func (x *site) now() time.Time { return time.Unix(x.clock.Load(), 0) }

// interrupt calls the interruption, if there is one, and ends it.
func (x *site) interrupt(context.Context) {
	if f := x.interruption; f != nil {
		x.interruption = nil
		f()
	}
}

// open returns a site with an empty store.
func open(t *testing.T, s *storetest.Store) *site {
	t.Helper()
	x := &site{store: s, others: newProviders(t), counts: [2]map[string]int{{}, {}}}
	x.clock.Store(time.Now().Unix())
	log := slog.New(slog.DiscardHandler)
	s.Now, s.Log, s.BeforeWrite = x.now, log, x.interrupt
	if err := s.SetManagedRoles(t.Context(), authz.ManagedRoles()); err != nil {
		t.Fatal(err)
	}
	key := secret.NewKey()
	client := &http.Client{Transport: x.others}
	x.checker = must(authz.Load(t.Context(), s.DB, log))(t)
	x.checker.Issuer = address
	x.issuer = must(token.New(t.Context(), s.DB, token.Config{Issuer: address, Key: key, Now: x.now}))(t)
	known := must(issuers.New(issuers.Config{Client: client, Now: x.now}))(t)
	x.sts = sts.New(s.DB, x.checker, x.issuer, known,
		sts.Config{BaseURL: address, RegistryHost: registryHost, Log: log, Now: x.now})
	pages := page.NewTokens(key.Derive("pages"), x.now)
	x.iam = iam.New(s.DB, x.checker, pages, iam.Config{Key: key, Now: x.now, CreateOrganizations: iam.Owners})
	x.people = accounts.New(s.DB, x.checker, pages, accounts.Config{Issuer: address, Log: log, Now: x.now})
	x.login = must(login.New(s.DB, x.checker, x.sts, x.people, login.Config{
		Issuer: address, BaseURL: address, Key: key, Client: client, Log: log, Now: x.now,
	}))(t)
	x.pages = x.login.Handler()
	x.follow(t)
	return x
}

// follow keeps the checker up to date until the test ends, as a server does.
func (x *site) follow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.checker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// cheapHash returns a hash of the constant password. A hash contains its cost; this hash has a low cost to make tests
// fast.
func cheapHash() string {
	salt := []byte("0123456789abcdef")
	enc := base64.RawStdEncoding.EncodeToString
	return "$argon2id$v=19$m=64,t=1,p=1$" + enc(salt) + "$" + enc(argon2.IDKey([]byte(password), salt, 1, 64, 1, 32))
}

// A browser stores cookies and does not follow redirects.
type browser struct {
	x       *site
	cookies map[string]string
	csrf    string // CSRF token in the last form
}

func (x *site) browser() *browser { return &browser{x: x, cookies: map[string]string{}} }

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// send sends a request. It returns the location to which the response redirects, if any, and the status.
func (b *browser) send(ctx context.Context, method, target string, fields ...string) (location string, status int) {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(ctx, method, address+strings.TrimPrefix(target, address),
		strings.NewReader(form.Encode()))
	// Every world has its own IP address, so that a limit per address is a limit per world.
	r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:443", b.x.worlds>>8&255, b.x.worlds&255)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.x.pages.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	if m := csrfField.FindStringSubmatch(w.Body.String()); m != nil {
		b.csrf = m[1]
	}
	return w.Header().Get("Location"), w.Code
}

// identityProviders are all other identity providers. The good providers share one signing key, and the evil
// providers share another.
type identityProviders struct {
	keys  [2]*ecdsa.PrivateKey
	mu    sync.Mutex
	codes map[string]string // ID tokens, by authorization code
}

func newProviders(t *testing.T) *identityProviders {
	t.Helper()
	i := &identityProviders{codes: map[string]string{}}
	for s := range i.keys {
		i.keys[s] = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	}
	return i
}

// keySet returns the JSON Web Key Set for the signing key of a side.
func (i *identityProviders) keySet(s side) string {
	b, err := i.keys[s].PublicKey.Bytes()
	if err != nil {
		panic(err) // Bytes cannot fail for a P-256 key
	}
	enc := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k","use":"sig","x":%q,"y":%q}]}`,
		enc(b[1:33]), enc(b[33:]))
}

// sign returns a token with these claims, signed with the key of a side.
func (i *identityProviders) sign(s side, claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // Marshal cannot fail for strings and numbers
	}
	enc := base64.RawURLEncoding.EncodeToString
	text := enc([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + enc(body)
	sum := sha256.Sum256([]byte(text))
	r, t, err := ecdsa.Sign(rand.Reader, i.keys[s], sum[:])
	if err != nil {
		panic(err) // signing cannot fail
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	t.FillBytes(signature[32:])
	return text + "." + enc(signature)
}

// code returns a new authorization code that can be exchanged for an ID token.
func (i *identityProviders) code(idToken string) string {
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = idToken
	i.mu.Unlock()
	return code
}

// RoundTrip answers a request in the place of the issuer to which it is addressed.
func (i *identityProviders) RoundTrip(r *http.Request) (*http.Response, error) {
	at := "https://" + r.URL.Host
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token", "jwks_uri": at + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"},
		}
	case "/keys":
		answer = json.RawMessage(i.keySet(sideOf(at)))
	case "/token":
		if err := r.ParseForm(); err != nil {
			return nil, err
		}
		i.mu.Lock()
		answer = map[string]any{"access_token": "unused", "token_type": "Bearer", "id_token": i.codes[r.PostForm.Get("code")]}
		delete(i.codes, r.PostForm.Get("code"))
		i.mu.Unlock()
	default:
		return nil, fmt.Errorf("no issuer answers at %s", r.URL.Path)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{
		StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}
