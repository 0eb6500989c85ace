package token_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const testIssuerURL = "http://127.0.0.1:8080/dev/issuer"

func newTestIssuer(t *testing.T, key []byte) *token.TestIssuer {
	t.Helper()
	i, err := token.NewTestIssuer(testIssuerURL, key, func() time.Time { return time.Unix(1000, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func ask(t *testing.T, i *token.TestIssuer, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	i.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// mintTest requests a token with body, verifies it with the published keys of the issuer, and
// returns its claims.
func mintTest(t *testing.T, i *token.TestIssuer, body string) map[string]any {
	t.Helper()
	_, published := ask(t, i, http.MethodGet, "/jwks", "")
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(published), &keys); err != nil {
		t.Fatal(err)
	}
	status, answer := ask(t, i, http.MethodPost, "/token", body)
	var minted struct{ Token string }
	if err := json.Unmarshal([]byte(answer), &minted); err != nil || status != http.StatusOK {
		t.Fatalf("POST /token = %d %s", status, answer)
	}
	signed, err := jose.ParseSigned(minted.Token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(keys)
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestTestIssuerMints(t *testing.T) {
	tests := map[string]struct {
		body string
		want map[string]any // expected claims besides the common claims
	}{
		"nothing asked": {`{}`, map[string]any{"sub": "test"}},
		"claims": {
			`{"sub": "a", "email": "a@example.com"}`, map[string]any{"sub": "a", "email": "a@example.com"},
		},
		"another life":       {`{"exp": 2000000000000000001}`, map[string]any{"sub": "test", "exp": 2000000000000000001.0}},
		"another audience":   {`{"aud": ["a", "b"]}`, map[string]any{"sub": "test", "aud": []any{"a", "b"}}},
		"another issuer":     {`{"iss": "https://x.example"}`, map[string]any{"sub": "test", "iss": "https://x.example"}},
		"a claim taken away": {`{"sub": null}`, map[string]any{}},
		"a preset, overridden": {
			`{"preset": "kubernetes", "sub": "a", "kubernetes.io": 1}`, map[string]any{"sub": "a", "kubernetes.io": 1.0},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := mintTest(t, newTestIssuer(t, nil), tt.body)
			if got["jti"] == "" {
				t.Error("the token has no id")
			}
			delete(got, "jti")
			want := map[string]any{
				"iss": testIssuerURL, "aud": "http://127.0.0.1:8080", "iat": 1000.0, "nbf": 1000.0, "exp": 4600.0,
			}
			maps.Copy(want, tt.want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTestIssuerPresets(t *testing.T) {
	tests := map[string]map[string]string{
		"github": {"sub": "repo:example/app:ref:refs/heads/main", "repository": "example/app", "event_name": "push"},
		"gitlab": {
			"sub": "project_path:example/app:ref_type:branch:ref:main", "project_path": "example/app", "ref_protected": "true",
		},
		"kubernetes": {"sub": "system:serviceaccount:default:builder"},
		"github-ids": {
			"sub": "repo:example@2001/app@1001:ref:refs/heads/main", "repository_id": "1001", "repository_owner_id": "2001",
		},
		"buildkite": {
			"sub": "organization:example:pipeline:app:ref:refs/heads/main:" +
				"commit:0123456789abcdef0123456789abcdef01234567:step:build",
			"pipeline_slug": "app", "organization_slug": "example",
		},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got := mintTest(t, newTestIssuer(t, nil), `{"preset": "`+name+`"}`)
			for claim, value := range want {
				if got[claim] != value {
					t.Errorf("%s = %v, want %s", claim, got[claim], value)
				}
			}
			if _, ok := got["preset"]; ok {
				t.Error("the preset's name is a claim")
			}
		})
	}
}

func TestTestIssuerRefuses(t *testing.T) {
	tests := map[string]struct {
		body, says string
	}{
		"no JSON":          {"", "must be a JSON object"},
		"a list":           {"[]", "must be a JSON object"},
		"an odd preset":    {`{"preset": "x"}`, "must be one of buildkite, github, github-ids, gitlab, kubernetes"},
		"a preset of 1":    {`{"preset": 1}`, "must be one of"},
		"more than enough": {`{"a": "` + strings.Repeat("x", 1<<17) + `"}`, "must be a JSON object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, answer := ask(t, newTestIssuer(t, nil), http.MethodPost, "/token", tt.body)
			if status != http.StatusBadRequest || !strings.Contains(answer, tt.says) ||
				!strings.Contains(answer, `"code":3`) {
				t.Errorf("POST /token = %d %s", status, answer)
			}
		})
	}
}

func TestTestIssuerKey(t *testing.T) {
	first := newTestIssuer(t, nil)
	_, keys := ask(t, first, http.MethodGet, "/jwks", "")
	if _, again := ask(t, newTestIssuer(t, first.Key()), http.MethodGet, "/jwks", ""); again != keys {
		t.Error("the same key makes another issuer")
	}
	if _, other := ask(t, newTestIssuer(t, nil), http.MethodGet, "/jwks", ""); other == keys {
		t.Error("two issuers have one key")
	}
	if _, err := token.NewTestIssuer(testIssuerURL, []byte("no key"), time.Now); err == nil {
		t.Error("a key that is none is accepted")
	}
}

func TestTestIssuerDiscovery(t *testing.T) {
	_, text := ask(t, newTestIssuer(t, nil), http.MethodGet, "/.well-known/openid-configuration", "")
	var got struct {
		Issuer string
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Issuer != testIssuerURL || got.Keys != testIssuerURL+"/jwks" {
		t.Errorf("discovery = %s", text)
	}
}
