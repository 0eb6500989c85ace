package issuers_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// A key signs with ES256.
type key struct {
	id      string
	private *ecdsa.PrivateKey
}

func newKey(t testing.TB, id string) key {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key{id, k}
}

// jwk returns the public key in the form of key sets.
func (k key) jwk() map[string]string {
	point, err := k.private.PublicKey.Bytes() // the byte 4, followed by X and Y
	if err != nil {
		panic(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return map[string]string{"kty": "EC", "crv": "P-256", "kid": k.id, "x": b64(point[1:33]), "y": b64(point[33:])}
}

func keySet(keys ...key) []byte {
	var all []map[string]string
	for _, k := range keys {
		all = append(all, k.jwk())
	}
	b, err := json.Marshal(map[string]any{"keys": all})
	if err != nil {
		panic(err)
	}
	return b
}

// token returns a parsed token that has these claims and is signed with the key.
func (k key) token(t testing.TB, claims map[string]any) *issuers.Token {
	t.Helper()
	tok, err := issuers.Parse(k.sign(t, claims))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func (k key) sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	input := b64([]byte(`{"alg":"ES256","kid":"`+k.id+`"}`)) + "." + b64(body)
	sum := sha256.Sum256([]byte(input))
	der, err := k.private.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + b64(rawSignature(der))
}

// rawSignature converts a DER signature to its two numbers.
func rawSignature(der []byte) []byte {
	out := make([]byte, 64)
	rest := der[2:]
	for i := range 2 {
		n := rest[1]
		number := rest[2 : 2+n]
		for len(number) > 32 {
			number = number[1:]
		}
		copy(out[32*(i+1)-len(number):], number)
		rest = rest[2+n:]
	}
	return out
}

func good(iss string) map[string]any {
	return map[string]any{"iss": iss, "sub": "s", "aud": "a", "exp": time.Now().Add(time.Hour).Unix()}
}

// A transport responds instead of the network, and counts requests.
type transport struct {
	mu     sync.Mutex
	asked  []string
	answer func(r *http.Request) (*http.Response, error)
}

func (s *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String())
	s.mu.Unlock()
	return s.answer(r)
}

func (s *transport) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func ok(body string) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

const name = "https://issuer.example"

// named is the quota of an identity that names its issuer.
var named = issuers.QuotaKey{Tenant: "a", Reason: issuers.Named}

// issuing responds like an issuer with those keys.
func issuing(keys ...key) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/keys" {
			return ok(string(keySet(keys...)))
		}
		return ok(fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, name, name+"/keys"))
	}
}

func newIssuers(t *testing.T, s *transport) *issuers.Issuers {
	t.Helper()
	i, err := issuers.New(issuers.Config{Client: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestRemembers checks, over several hours, when the keys of one issuer are fetched and for how long cached keys are
// trusted.
func TestRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newKey(t, "one"), newKey(t, "two")
		net := &transport{answer: issuing(one)}
		trusted := newIssuers(t, net)
		verify := func(k key, want error, asked int) {
			t.Helper()
			before := net.count()
			if err := trusted.Verify(t.Context(), named, k.token(t, good(name))); !errors.Is(err, want) {
				t.Errorf("error = %v, want %v", err, want)
			}
			synctest.Wait()
			if n := net.count() - before; n != asked {
				t.Errorf("%d requests, want %d", n, asked)
			}
		}
		verify(one, nil, 2) // one request for the discovery document and one for the keys
		verify(one, nil, 0)
		for range 100 {
			verify(two, issuers.ErrUnknownKey, 0) // no request, because the keys were just fetched
		}
		time.Sleep(time.Minute)
		verify(two, issuers.ErrUnknownKey, 2)
		for range 100 {
			verify(two, issuers.ErrUnknownKey, 0)
		}
		net.answer = issuing(two) // the issuer replaces its key
		time.Sleep(time.Minute)
		verify(two, nil, 2)
		verify(one, issuers.ErrUnknownKey, 0)
		time.Sleep(10*time.Minute + time.Second)
		verify(two, nil, 2) // the cached key is used, and two requests refresh it in the background
		net.answer = func(*http.Request) (*http.Response, error) { return nil, errors.New("away") }
		time.Sleep(time.Hour)
		verify(two, nil, 1) // one failed request; tokens of an unreachable issuer stay valid for a while
		verify(two, nil, 0)
		time.Sleep(6 * time.Hour)
		var away *issuers.Unreachable
		if err := trusted.Verify(t.Context(), named, two.token(t, good(name))); !errors.As(err, &away) {
			t.Errorf("after six hours: %v", err)
		}
		before := net.count()
		for range 100 { // an unreachable issuer does not get more requests
			if err := trusted.Verify(t.Context(), named, two.token(t, good(name))); !errors.As(err, &away) {
				t.Errorf("error = %v", err)
			}
		}
		if n := net.count() - before; n != 0 {
			t.Errorf("%d requests to a dead issuer in no time", n)
		}
		net.answer = issuing(two)
		time.Sleep(10 * time.Second)
		verify(two, nil, 2)
	})
}

// TestHammered checks that many concurrent tokens with unknown key ids cause at most one fetch per minute.
func TestHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &transport{answer: issuing(newKey(t, "one"))}
		trusted := newIssuers(t, net)
		k := newKey(t, "none")
		tok := k.token(t, good(name))
		for range 10 { // each round takes a minute
			for range 10 {
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						if err := trusted.Verify(t.Context(), named, tok); !errors.Is(err, issuers.ErrUnknownKey) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(6 * time.Second)
			}
		}
		if n := net.count() / 2; n > 10 {
			t.Errorf("5000 tokens of unknown keys in ten minutes made %d fetches, want one a minute", n)
		}
	})
}

// TestSlowIssuerKeepsNobody: an issuer that does not respond does not delay another issuer.
func TestSlowIssuerKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKey(t, "one")
		net := &transport{answer: func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "slow.example" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return issuing(k)(r)
		}}
		trusted := newIssuers(t, net)
		slow := k.token(t, good("https://slow.example"))
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				var away *issuers.Unreachable
				if err := trusted.Verify(t.Context(), named, slow); !errors.As(err, &away) {
					t.Errorf("the slow one: %v", err)
				}
			})
		}
		synctest.Wait() // now all requests wait
		begin := time.Now()
		if err := trusted.Verify(t.Context(), named, k.token(t, good(name))); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the other took %v", took)
		}
		wg.Wait()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the slow one took %v to be given up", took)
		}
		leaving, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Minute)
		if err := trusted.Verify(leaving, named, slow); !errors.Is(err, context.Canceled) {
			t.Errorf("one who has left: %v", err)
		}
		time.Sleep(time.Minute) // the fetch ends with an error
	})
}

// TestBadIssuers: invalid responses of issuers are refused.
func TestBadIssuers(t *testing.T) {
	k := newKey(t, "one")
	var stray atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stray.Add(1)
		_, _ = w.Write(keySet(k))
	}))
	defer elsewhere.Close()
	good := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(keySet(k)) }
	endless := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"keys":[`)
		for range 64 << 10 {
			if _, err := io.WriteString(w, `{"kty":"oct","k":"AAAA"},`); err != nil {
				return
			}
		}
	}
	redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the client has gone
	}
	fixed := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	tests := map[string]struct {
		discovery http.HandlerFunc // nil responds with a valid document
		keys      http.HandlerFunc
		reason    string // part of the error; "" if no error is expected
	}{
		"a good one":               {nil, good, ""},
		"redirecting discovery":    {redirect, good, "302"},
		"redirecting keys":         {nil, redirect, "302"},
		"endless discovery":        {endless, good, "too long"},
		"endless keys":             {nil, endless, "too long"},
		"slow discovery":           {hang, good, "in time"},
		"slow keys":                {nil, hang, "in time"},
		"no discovery":             {http.NotFound, good, "404"},
		"no keys":                  {nil, http.NotFound, "404"},
		"discovery that is a page": {fixed("<html>"), good, "not valid JSON"},
		"discovery of another": {
			fixed(`{"issuer":"https://other.example","jwks_uri":"` + elsewhere.URL + `"}`), good, "another issuer",
		},
		"discovery with a slash": {
			fixed(`{"issuer":"SELF/","jwks_uri":"` + elsewhere.URL + `"}`), good, "another issuer",
		},
		"discovery of nobody":    {fixed(`{"jwks_uri":"` + elsewhere.URL + `"}`), good, "another issuer"},
		"discovery without keys": {fixed(`{"issuer":"SELF"}`), good, "no jwks_uri"},
		"keys in a file":         {fixed(`{"issuer":"SELF","jwks_uri":"file:///etc/passwd"}`), good, "https"},
		"keys in the cloud": {
			fixed(`{"issuer":"SELF","jwks_uri":"http://169.254.169.254/latest"}`), good, "https",
		},
		"keys in the cloud, with TLS": {
			fixed(`{"issuer":"SELF","jwks_uri":"https://169.254.169.254/latest"}`), good, "not public",
		},
		"keys at a private address": {fixed(`{"issuer":"SELF","jwks_uri":"https://10.0.0.1/"}`), good, "not public"},
		"keys at no address":        {fixed(`{"issuer":"SELF","jwks_uri":"://"}`), good, "malformed"},
		"keys that are a page":      {nil, fixed("<html>"), "not valid JSON"},
		"keys that are none":        {nil, fixed(`{"keys":[]}`), "no key"},
		"keys that are null":        {nil, fixed(`null`), "no key"},
		"keys that are secrets":     {nil, fixed(`{"keys":[{"kty":"oct","kid":"one","k":"c2VjcmV0"}]}`), "no key"},
		"keys that are too short": {
			nil, fixed(`{"keys":[{"kty":"RSA","kid":"one","n":"` + strings.Repeat("A_", 85) + `","e":"AQAB"}]}`), "no key",
		},
		"keys to encrypt with": {
			nil, fixed(strings.Replace(string(keySet(k)), `"kid"`, `"use":"enc","kid"`, 1)), "no key",
		},
		"more keys than anybody needs": {nil, fixed(`{"keys":[` + strings.Repeat(`{},`, 101) + `{}]}`), "more than 100"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			s := httptest.NewServer(mux)
			defer s.Close()
			mux.HandleFunc("/keys", tt.keys)
			mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
				if tt.discovery == nil {
					fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, s.URL, s.URL+"/keys")
					return
				}
				rec := httptest.NewRecorder()
				if strings.HasPrefix(name, "slow") || strings.HasPrefix(name, "endless") {
					tt.discovery(w, r)
					return
				}
				tt.discovery(rec, r)
				for header, values := range rec.Header() {
					w.Header()[header] = values
				}
				w.WriteHeader(rec.Code)
				_, _ = io.WriteString(w, strings.ReplaceAll(rec.Body.String(), "SELF", s.URL))
			})
			timeout := time.Minute
			if strings.HasPrefix(name, "slow") {
				timeout = 2 * time.Second // enough for the discovery on a slow machine
			}
			trusted, err := issuers.New(
				issuers.Config{Client: outbound.Client(outbound.Config{Loopback: true, Timeout: timeout})},
			)
			if err != nil {
				t.Fatal(err)
			}
			claims := map[string]any{"iss": s.URL, "sub": "s", "aud": "a", "exp": time.Now().Add(time.Hour).Unix()}
			err = trusted.Verify(t.Context(), named, k.token(t, claims))
			var away *issuers.Unreachable
			if tt.reason == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &away) || !strings.Contains(away.Reason(), tt.reason) {
				t.Errorf("error = %v, want one about %q", err, tt.reason)
			}
			if away != nil && strings.Contains(away.Reason(), "169.254") {
				t.Errorf("the reason tells of the network: %s", away.Reason())
			}
		})
	}
	if n := stray.Load(); n != 0 {
		t.Errorf("%d requests went where an issuer pointed in vain", n)
	}
}

// TestGivenKeys checks that tokens of issuers whose keys are configured are verified without discovery.
func TestGivenKeys(t *testing.T) {
	k := newKey(t, "one")
	net := &transport{answer: func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != "https://keys.example/set" {
			return nil, errors.New("asked " + r.URL.String())
		}
		return ok(string(keySet(k)))
	}}
	trusted, err := issuers.New(issuers.Config{Client: &http.Client{Transport: net}, Fixed: map[string]issuers.Source{
		"https://given.example":     {Keys: keySet(k)},
		"https://elsewhere.example": {KeysURI: "https://keys.example/set"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for issuer, asked := range map[string]int{"https://given.example": 0, "https://elsewhere.example": 1} {
		before := net.count()
		if err := trusted.Verify(t.Context(), named, k.token(t, good(issuer))); err != nil {
			t.Errorf("%s: %v", issuer, err)
		}
		if n := net.count() - before; n != asked {
			t.Errorf("%s: %d requests, want %d", issuer, n, asked)
		}
		keys, err := trusted.FetchKeys(t.Context(), named, issuer)
		if err != nil || len(keys) != 1 || keys[0].ID != "one" || keys[0].Algorithm != "ES256" {
			t.Errorf("%s: %v, %v", issuer, keys, err)
		}
	}
	if _, err := issuers.New(issuers.Config{Fixed: map[string]issuers.Source{"x": {Keys: []byte("{}")}}}); err == nil {
		t.Error("keys that are none were taken")
	}
}
