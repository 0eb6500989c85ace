package token_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

const testRedirect = "http://127.0.0.1:8080/oauth/callback"

// TestTestIssuerSignsIn checks that a person can sign in at the test issuer with the authorization code flow, once for
// each code, and that codes are sent only to this server and this machine.
func TestTestIssuerSignsIn(t *testing.T) {
	i := newTestIssuer(t, nil)
	do := func(method, path string, form url.Values) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		if form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		i.Handler().ServeHTTP(w, r)
		return w
	}
	sum := sha256.Sum256([]byte("verifier"))
	question := func(redirect string) string {
		return "/authorize?" + url.Values{
			"client_id": {"acme"}, "redirect_uri": {redirect}, "response_type": {"code"}, "state": {"s"}, "nonce": {"n"},
			"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		}.Encode()
	}
	page := do(http.MethodGet, question(testRedirect), nil)
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), `<form method="post"`) ||
		!strings.HasPrefix(page.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("the page: %d %s", page.Code, page.Body)
	}
	signIn := func() string {
		w := do(http.MethodPost, question(testRedirect), url.Values{
			"sub": {"ann"}, "email": {"ann@example.com"}, "email_verified": {"true"}, "groups": {"devs, ops"},
		})
		to, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusSeeOther || to.Query().Get("state") != "s" ||
			to.Query().Get("iss") != testIssuerURL || !strings.HasPrefix(to.String(), testRedirect+"?") {
			t.Fatalf("signed in: %d %s", w.Code, to)
		}
		return to.Query().Get("code")
	}
	exchange := func(code, client, verifier string) (int, map[string]any) {
		w := do(http.MethodPost, "/token", url.Values{
			"grant_type": {"authorization_code"}, "code": {code}, "client_id": {client}, "redirect_uri": {testRedirect},
			"code_verifier": {verifier},
		})
		var got struct {
			Token string `json:"id_token"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(got.Token, ".")
		if len(parts) != 3 {
			return w.Code, nil
		}
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
		var claims map[string]any
		if err := json.Unmarshal(payload, &claims); err != nil {
			t.Fatal(err)
		}
		return w.Code, claims
	}
	code := signIn()
	status, claims := exchange(code, "acme", "verifier")
	groups, _ := claims["groups"].([]any)
	if status != http.StatusOK || claims["sub"] != "ann" || claims["aud"] != "acme" || claims["nonce"] != "n" ||
		claims["email_verified"] != true || len(groups) != 2 || claims["iss"] != testIssuerURL {
		t.Errorf("claims: %d %v", status, claims)
	}
	for name, got := range map[string]func() (int, map[string]any){
		"a code that was used": func() (int, map[string]any) { return exchange(code, "acme", "verifier") },
		"another client":       func() (int, map[string]any) { return exchange(signIn(), "other", "verifier") },
		"another verifier":     func() (int, map[string]any) { return exchange(signIn(), "acme", "guess") },
	} {
		if status, claims := got(); status != http.StatusBadRequest || claims != nil {
			t.Errorf("%s: %d %v", name, status, claims)
		}
	}
	for _, redirect := range []string{
		"https://evil.example/", "javascript:alert(1)", "//evil.example", "http://u:p@127.0.0.1:8080/", "",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if w := do(method, question(redirect), url.Values{"sub": {"ann"}}); w.Code != http.StatusBadRequest {
				t.Errorf("%s to %q: %d %s", method, redirect, w.Code, w.Header().Get("Location"))
			}
		}
	}
	w := do(http.MethodPost, question(testRedirect), url.Values{"sub": {strings.Repeat("<script>", 1000)}})
	if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("a long subject: %d", w.Code)
	}
}
