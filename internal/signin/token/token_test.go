package token_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	issuer = "https://auth.example"
	api    = "https://api.example"
	images = "registry.example"

	ann resource.UID = "1111111111111111111111111111111111111111/aaaaaaaaaaaaaaaa"
)

// noon is the time at which the tests run.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// A clock shows the time that a test has set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func open(t testing.TB, s *storetest.Store, cfg token.Config) *token.Issuer {
	t.Helper()
	if cfg.Issuer == "" {
		cfg.Issuer = issuer
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return noon }
	}
	i, err := token.New(t.Context(), s.DB, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mint(t testing.TB, i *token.Issuer, c token.Claims) string {
	t.Helper()
	raw, err := i.Mint(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestVerifyReturnsWhatWasMinted(t *testing.T) {
	caps := resource.CapabilitySet("groups.list", "actions.list")
	act := &resource.Upstream{Issuer: "https://up.example", Subject: "ann", Audience: []string{"x", "y"}}
	tests := map[string]struct {
		claims token.Claims
		want   authz.Caller
	}{
		"the least": {
			token.Claims{Subject: ann, Audience: []string{api}},
			authz.Caller{Identity: ann, Issued: noon, Expires: noon.Add(time.Hour), Audience: []string{api}},
		},
		"everything": {
			token.Claims{Subject: ann, Audience: []string{images, api}, Act: act, Email: "ann@example.com", EmailVerified: true,
				Caps: &caps, Scopes: []resource.UID{ann.Parent()}, Life: time.Minute},
			authz.Caller{Identity: ann, Issued: noon, Expires: noon.Add(time.Minute), Audience: []string{images, api},
				Act: act, Email: "ann@example.com", EmailVerified: true,
				Caps: &caps, Scopes: []resource.UID{ann.Parent()}},
		},
		"until another ends": {
			token.Claims{Subject: ann, Audience: []string{api}, Until: noon.Add(time.Minute)},
			authz.Caller{Identity: ann, Issued: noon, Expires: noon.Add(time.Minute), Audience: []string{api}},
		},
		"ending before another": {
			token.Claims{Subject: ann, Audience: []string{api}, Life: time.Minute, Until: noon.Add(time.Hour)},
			authz.Caller{Identity: ann, Issued: noon, Expires: noon.Add(time.Minute), Audience: []string{api}},
		},
		"narrowed to nothing": {
			token.Claims{
				Subject: ann, Audience: []string{api}, Caps: &resource.Capabilities{}, Scopes: []resource.UID{},
			},
			authz.Caller{
				Identity: ann, Issued: noon, Expires: noon.Add(time.Hour), Audience: []string{api},
				Caps: &resource.Capabilities{}, Scopes: []resource.UID{},
			},
		},
	}
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		i := open(t, s, token.Config{Key: secret.NewKey()})
		for name, tt := range tests {
			raw := mint(t, i, tt.claims)
			for _, time := range []string{"verified", "remembered"} {
				got, err := i.Verify(t.Context(), raw, api)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, time, err)
				}
				if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(authz.Caller{})); diff != "" {
					t.Errorf("%s, %s: %s", name, time, diff)
				}
			}
		}
	})
}

func TestMintedClaims(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	i := open(t, s, token.Config{Key: secret.NewKey()})
	caps := resource.CapabilitySet("groups.list")
	tests := map[string]struct {
		claims token.Claims
		want   map[string]any
	}{
		"one audience": {
			token.Claims{Subject: ann, Audience: []string{api}},
			map[string]any{"aud": api, "exp": float64(noon.Add(time.Hour).Unix())},
		},
		"two, narrowed": {
			token.Claims{Subject: ann, Audience: []string{api, images}, Caps: &caps, Scopes: []resource.UID{ann},
				Life:  time.Minute,
				Act:   &resource.Upstream{Issuer: "https://up.example", Subject: "ann", Audience: []string{"x"}},
				Email: "a@b.example", EmailVerified: true},
			map[string]any{
				"aud": []any{api, images}, "exp": float64(noon.Add(time.Minute).Unix()), "cap": "AAAAAAAAADIAAAAAAAAACA==",
				"scopes": []any{string(ann)}, "email": "a@b.example", "email_verified": true,
				"act": map[string]any{"iss": "https://up.example", "sub": "ann", "aud": []any{"x"}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for claim, value := range map[string]any{"iss": issuer, "sub": string(ann), "iat": float64(noon.Unix()),
				"nbf": float64(noon.Unix())} {
				tt.want[claim] = value
			}
			raw := mint(t, i, tt.claims)
			got := claimsOf(t, raw)
			id, _ := got["jti"].(string)
			if delete(got, "jti"); len(id) < 20 || id == claimsOf(t, mint(t, i, tt.claims))["jti"] {
				t.Errorf("jti %q is short or used twice", id)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func claimsOf(t *testing.T, raw string) (claims map[string]any) {
	t.Helper()
	body, err := base64.RawURLEncoding.DecodeString(strings.Split(raw, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestMintRefuses(t *testing.T) {
	i := open(t, storetest.Open(t, storetest.SQLite(t)), token.Config{Key: secret.NewKey()})
	for name, c := range map[string]token.Claims{
		"no subject":            {Audience: []string{api}},
		"a subject that is not": {Subject: "ann", Audience: []string{api}},
		"no audience":           {Subject: ann},
		"too long a life":       {Subject: ann, Audience: []string{api}, Life: token.MaxLife + time.Second},
		"a life that is over":   {Subject: ann, Audience: []string{api}, Life: -time.Hour},
		"an end that has come":  {Subject: ann, Audience: []string{api}, Until: noon},
	} {
		if _, err := i.Mint(t.Context(), c); err == nil {
			t.Errorf("%s: minted", name)
		}
	}
}

// A forger signs any claims with any key.
type forger struct {
	t      testing.TB
	public jose.JSONWebKey   // public key of the issuer
	key    *ecdsa.PrivateKey // private key of the issuer, for tokens in which only the claims are invalid
	claims map[string]any    // claims of a valid token
}

func newForger(t testing.TB, s *storetest.Store, master secret.Key) forger {
	stored, err := s.SigningKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := master.Open("signing key", stored[0].Sealed)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		t.Fatal(err)
	}
	key := private.(*ecdsa.PrivateKey)
	at := float64(noon.Unix())
	return forger{t, jose.JSONWebKey{Key: &key.PublicKey, KeyID: stored[0].ID}, key, map[string]any{
		"iss": issuer, "sub": string(ann), "aud": api, "iat": at, "nbf": at, "exp": at + 60,
	}}
}

// with returns a token with one changed claim, signed with the key of the issuer.
func (f forger) with(claim string, value any) string {
	claims := map[string]any{}
	for k, v := range f.claims {
		claims[k] = v
	}
	if claims[claim] = value; value == nil {
		delete(claims, claim)
	}
	return f.sign(jose.ES256, jose.JSONWebKey{Key: f.key, KeyID: f.public.KeyID}, claims)
}

func (f forger) sign(alg jose.SignatureAlgorithm, key any, claims any) string {
	f.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		f.t.Fatal(err)
	}
	signed, err := signer.Sign(body)
	if err != nil {
		f.t.Fatal(err)
	}
	raw, err := signed.CompactSerialize()
	if err != nil {
		f.t.Fatal(err)
	}
	return raw
}

func (f forger) unsigned(alg, signature string) string {
	header := fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg, f.public.KeyID)
	body, err := json.Marshal(f.claims)
	if err != nil {
		f.t.Fatal(err)
	}
	b64 := base64.RawURLEncoding
	return b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString(body) + "." + signature
}

func (f forger) publicPEMAsSecret() string {
	der, err := x509.MarshalPKIXPublicKey(f.public.Key)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.sign(jose.HS256, jose.JSONWebKey{Key: der, KeyID: f.public.KeyID}, f.claims)
}

func (f forger) anotherKey(id string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.sign(jose.ES256, jose.JSONWebKey{Key: key, KeyID: id}, f.claims)
}

// tampered returns a valid token in which the claims are replaced by the claims of another token.
func tampered(good, other string) string {
	g, o := strings.Split(good, "."), strings.Split(other, ".")
	return g[0] + "." + o[1] + "." + g[2]
}

func TestVerifyRefuses(t *testing.T) {
	const notOurs, unreadable = "the token is not signed by this service", "the token cannot be read"
	at := float64(noon.Unix())
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		master := secret.NewKey()
		i := open(t, s, token.Config{Key: master})
		f := newForger(t, s, master)
		good := f.with("", nil)
		if _, err := i.Verify(t.Context(), good, api); err != nil {
			t.Fatalf("a good token: %v", err)
		}
		tests := map[string]struct{ raw, want string }{
			"expired":                   {f.with("exp", at), "the token has expired"},
			"without an end":            {f.with("exp", nil), "the token has expired"},
			"not valid yet":             {f.with("nbf", at+31), "the token is not valid yet"},
			"issued later":              {f.with("iat", at+31), "the token is not valid yet"},
			"another audience":          {f.with("aud", images), "the token is for another audience"},
			"no audience":               {f.with("aud", nil), "the token is for another audience"},
			"part of the audience":      {f.with("aud", api+".evil.example"), "the token is for another audience"},
			"another issuer":            {f.with("iss", issuer+"/"), "the token is from another issuer"},
			"no issuer":                 {f.with("iss", nil), "the token is from another issuer"},
			"a subject of another kind": {f.with("sub", "ann"), "the subject of the token is not an identity"},
			"claims of other types":     {f.with("sub", 7), "the claims of the token cannot be read"},
			"a claim nobody knows":      {f.with("narrowed", "to nothing"), "the claims of the token cannot be read"},
			"a claim in other letters":  {f.with("Scopes", []string{}), "the claims of the token cannot be read"},
			"a wrong set of caps":       {f.with("cap", "AAAA"), "the claims of the token cannot be read"},
			"alg none":                  {f.unsigned("none", ""), "the token is signed with neither ES256 nor RS256"},
			"alg none, signed": {
				f.unsigned("none", strings.Split(good, ".")[2]), "the token is signed with neither ES256 nor RS256",
			},
			"HS256 with the public key": {f.publicPEMAsSecret(), "the token is signed with neither ES256 nor RS256"},
			"tampered claims": {
				tampered(good, f.with("sub", string(ann.Parent()))), "the signature of the token is wrong",
			},
			"no signature":            {f.unsigned("ES256", ""), "the signature of the token is wrong"},
			"another key of our name": {f.anotherKey(f.public.KeyID), "the signature of the token is wrong"},
			"another key":             {f.anotherKey("other"), notOurs},
			"a key without a name":    {f.anotherKey(""), notOurs},
			"garbage":                 {"garbage", unreadable},
			"two parts":               {"a.b", unreadable},
			"JSON":                    {`{"payload":"","signatures":[]}`, unreadable},
			"oversize":                {strings.Repeat("a", 16<<10+1), "the token is too long"},
			"a good one with a tail":  {good + ".", unreadable},
			"empty":                   {"", "a token is required"},
			"with the word bearer":    {"Bearer " + good, unreadable},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				caller, err := i.Verify(t.Context(), tt.raw, api)
				if !errors.Is(err, fault.Unauthenticated) || err.Error() != "Unauthenticated: "+tt.want {
					t.Errorf("error = %v, want %s", err, tt.want)
				}
				if caller.Identity != "" {
					t.Errorf("the caller is %s all the same", caller.Identity)
				}
			})
		}
	})
}

func TestVerifyAllowsForClocksThatDiffer(t *testing.T) {
	s, master := storetest.Open(t, storetest.SQLite(t)), secret.NewKey()
	i := open(t, s, token.Config{Key: master})
	f := newForger(t, s, master)
	for _, claim := range []string{"nbf", "iat"} {
		if _, err := i.Verify(t.Context(), f.with(claim, float64(noon.Unix()+30)), api); err != nil {
			t.Errorf("%s: %v", claim, err)
		}
	}
}

func TestRememberedTokensEnd(t *testing.T) {
	c := &clock{at: noon}
	i := open(t, storetest.Open(t, storetest.SQLite(t)), token.Config{Key: secret.NewKey(), Now: c.now})
	raw := mint(t, i, token.Claims{Subject: ann, Audience: []string{api}})
	for _, step := range []struct {
		after    time.Duration
		audience string
		good     bool
	}{
		{0, api, true},
		{0, images, false}, // a token cached for one audience is not accepted for another
		{time.Hour - time.Second, api, true},
		{time.Hour, api, false},
		{time.Hour, api, false},
	} {
		c.set(noon.Add(step.after))
		if _, err := i.Verify(t.Context(), raw, step.audience); (err == nil) != step.good {
			t.Errorf("after %v for %s: error = %v, want good: %v", step.after, step.audience, err, step.good)
		}
	}
}

func TestKeysOutliveTheProcess(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		master := secret.NewKey()
		var raw string
		t.Run("before", func(t *testing.T) {
			raw = mint(
				t, open(t, storetest.Open(t, url), token.Config{Key: master}),
				token.Claims{Subject: ann, Audience: []string{api}},
			)
		})
		if _, err := open(t, storetest.Open(t, url), token.Config{Key: master}).Verify(t.Context(), raw, api); err != nil {
			t.Error(err)
		}
	})
}

func TestReplicasShareOneKey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		master := secret.NewKey()
		issuers := make([]*token.Issuer, 4)
		var wg sync.WaitGroup
		for n := range issuers {
			wg.Go(func() {
				i, err := token.New(t.Context(), s.DB, token.Config{Issuer: issuer, Key: master})
				if err != nil {
					t.Error(err)
				}
				issuers[n] = i
			})
		}
		if wg.Wait(); t.Failed() {
			return
		}
		for _, i := range issuers {
			raw := mint(t, i, token.Claims{Subject: ann, Audience: []string{api}})
			for _, other := range issuers {
				if _, err := other.Verify(t.Context(), raw, api); err != nil {
					t.Error(err)
				}
			}
		}
		if stored, err := s.SigningKeys(t.Context()); err != nil || len(stored) != 1 {
			t.Errorf("%d keys are stored, %v", len(stored), err)
		}
	})
}

func TestKeysAreSealed(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		master := secret.NewKey()
		open(t, s, token.Config{Key: master})
		f := newForger(t, s, master)
		stored, err := s.SigningKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		private, err := f.key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(stored[0].Sealed, private) {
			t.Error("the private key is readable in the store")
		}
		_, err = token.New(t.Context(), s.DB, token.Config{Issuer: issuer, Key: secret.NewKey()})
		if err == nil ||
			!strings.Contains(err.Error(), "start with the encryption key this database was set up with") {
			t.Errorf("with another encryption key: error = %v", err)
		}
		if again, err := s.SigningKeys(t.Context()); err != nil || !cmp.Equal(stored, again) {
			t.Errorf("the stored keys have changed, or %v", err)
		}
	})
}

func TestPublishedKeysProveTokens(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		i := open(t, s, token.Config{Key: secret.NewKey()})
		var discovery map[string]any
		get(t, i, "/.well-known/openid-configuration", &discovery)
		want := map[string]any{
			"issuer": issuer, "jwks_uri": issuer + "/.well-known/jwks.json", "response_types_supported": []any{"code",
				"id_token"},
			"authorization_endpoint": issuer + "/oauth", "token_endpoint": issuer + "/oauth/token",
			"device_authorization_endpoint":  issuer + "/oauth/device_authorization",
			"identity_provider_redirect_uri": issuer + "/oauth/callback",
			"grant_types_supported": []any{
				"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code",
			},
			"code_challenge_methods_supported": []any{"S256"}, "token_endpoint_auth_methods_supported": []any{"none"},
			"subject_types_supported": []any{"public"}, "id_token_signing_alg_values_supported": []any{"ES256", "RS256"},
		}
		if diff := cmp.Diff(want, discovery); diff != "" {
			t.Error(diff)
		}
		var set jose.JSONWebKeySet
		get(t, i, "/.well-known/jwks.json", &set)
		signed, err := jose.ParseSigned(
			mint(t, i, token.Claims{Subject: ann, Audience: []string{api}}), []jose.SignatureAlgorithm{jose.ES256},
		)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := signed.Verify(set); err != nil {
			t.Errorf("the published keys do not prove the token: %v", err)
		}
		for n, k := range set.Keys {
			if !k.IsPublic() || k.Use != "sig" || k.Algorithm != []string{"ES256", "RS256"}[n] {
				t.Errorf("key %s is published as %+v", k.KeyID, k)
			}
		}
	})
}

func get(t *testing.T, i *token.Issuer, path string, into any) {
	t.Helper()
	w := httptest.NewRecorder()
	i.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" ||
		w.Header().Get("Cache-Control") == "" {
		t.Fatalf("GET %s: %d %v", path, w.Code, w.Header())
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}

func TestHandlerOnlyReads(t *testing.T) {
	i := open(t, storetest.Open(t, storetest.SQLite(t)), token.Config{Key: secret.NewKey()})
	for method, want := range map[string]int{"HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405} {
		for _, path := range []string{"/.well-known/openid-configuration", "/.well-known/jwks.json"} {
			w := httptest.NewRecorder()
			i.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			if w.Code != want {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
			}
		}
	}
}

func TestUnknownKeysAreLookedUpOnceASecond(t *testing.T) {
	c, master := &clock{at: noon}, secret.NewKey()
	url := storetest.SQLite(t)
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	i := open(t, storetest.Combine(s), token.Config{Key: master, Now: c.now})
	strange := newForger(t, storetest.Combine(s), master).anotherKey("strange")
	verify := func(want error) {
		t.Helper()
		if _, err := i.Verify(context.WithoutCancel(t.Context()), strange, api); !errors.Is(err, want) {
			t.Errorf("error = %v, want %v", err, want)
		}
	}
	verify(fault.Unauthenticated) // this call reads the store
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	verify(fault.Unauthenticated) // this call does not read the store, which is closed
	c.set(noon.Add(999 * time.Millisecond))
	verify(fault.Unauthenticated)
	c.set(noon.Add(time.Second))
	if _, err := i.Verify(t.Context(), strange, api); err == nil || errors.Is(err, fault.Unauthenticated) {
		t.Errorf("after a second: error = %v, want that of the closed store", err)
	}
}

func FuzzVerify(f *testing.F) {
	i := open(f, storetest.Open(f, storetest.SQLite(f)), token.Config{Key: secret.NewKey()})
	good := mint(f, i, token.Claims{Subject: ann, Audience: []string{api}})
	f.Add(good)
	f.Add("Bearer " + good)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		caller, err := i.Verify(t.Context(), raw, api)
		if err == nil {
			if want := (authz.Caller{Identity: ann, Issued: noon, Expires: noon.Add(time.Hour),
				Audience: []string{api}}); !cmp.Equal(want, caller,
				cmpopts.IgnoreUnexported(authz.Caller{})) {
				// Another text than the valid token may be accepted, because Base64 and ECDSA allow several texts of
				// one token. The caller must be the same.
				t.Fatalf("%q is accepted as %+v", raw, caller)
			}
			return
		}
		if !errors.Is(err, fault.Unauthenticated) || caller.Identity != "" ||
			len(raw) > 20 && strings.Contains(err.Error(), raw) {
			t.Fatalf("error = %v, caller = %q", err, caller.Identity)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	i := open(b, storetest.Open(b, storetest.SQLite(b)), token.Config{Key: secret.NewKey()})
	claims := token.Claims{
		Subject: ann, Audience: []string{api}, Act: &resource.Upstream{Issuer: "https://up.example", Subject: "ann"},
	}
	b.Run("hit", func(b *testing.B) {
		raw := mint(b, i, claims)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := i.Verify(b.Context(), raw, api); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("miss", func(b *testing.B) {
		all := make([]string, 20_000) // twice the size of the cache
		for n := range all {
			all[n] = mint(b, i, claims)
		}
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if _, err := i.Verify(b.Context(), all[n%len(all)], api); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
	b.Run("mint", func(b *testing.B) {
		for b.Loop() {
			mint(b, i, claims)
		}
	})
}
