package token

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/.well-known/jwks.json"

	// maxKeysAge is how old the published keys may be, here and in the caches
	// of others.
	maxKeysAge = time.Minute
)

// Handler serves the discovery document and the JSON Web Key Set, which others
// need to verify our tokens. Neither requires a token.
func (i *Issuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, i.serveDiscovery)
	mux.HandleFunc("GET "+keysPath, i.serveKeys)
	return mux
}

func (i *Issuer) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	at := func(path string) string { return strings.TrimSuffix(i.issuer, "/") + path }
	document, _ := json.Marshal(struct { // never fails
		Issuer        string   `json:"issuer"`
		Keys          string   `json:"jwks_uri"`
		Authorization string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		Device        string   `json:"device_authorization_endpoint"`
		ResponseTypes []string `json:"response_types_supported"`
		GrantTypes    []string `json:"grant_types_supported"`
		Challenges    []string `json:"code_challenge_methods_supported"`
		ClientAuth    []string `json:"token_endpoint_auth_methods_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
		Redirect      string   `json:"identity_provider_redirect_uri"` // what our clients at identity providers have
	}{
		i.issuer, at(keysPath), at("/oauth"), at("/oauth/token"), at("/oauth/device_authorization"),
		[]string{"code", "id_token"},
		[]string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
		[]string{"S256"}, []string{"none"}, []string{"public"}, []string{ES256, RS256},
		at("/oauth/callback"),
	})
	serve(w, document)
}

// serveKeys serves the stored keys, or the last known ones if the store cannot
// be reached: the tokens they verify are as good as before.
func (i *Issuer) serveKeys(w http.ResponseWriter, r *http.Request) {
	age := maxKeysAge
	if i.stale.Load() {
		age = 0
	}
	_, _ = i.refresh(r.Context(), age) // the last known ones are served as well
	serve(w, i.ensurePaired(r.Context()).document)
}

func serve(w http.ResponseWriter, document []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=60")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(document)
}
