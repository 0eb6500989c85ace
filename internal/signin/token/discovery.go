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

	// maxKeysAge is the maximum age of the published keys, here and in the caches of
	// clients.
	maxKeysAge = time.Minute
)

// Handler serves the discovery document and the JSON Web Key Set, which verifiers of
// our tokens need. Neither requires a token.
func (i *Issuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, i.serveDiscovery)
	mux.HandleFunc("GET "+keysPath, i.serveKeys)
	return mux
}

func (i *Issuer) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	address := func(path string) string { return strings.TrimSuffix(i.issuer, "/") + path }
	document, _ := json.Marshal(struct { // json.Marshal never fails here
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
		Redirect      string   `json:"identity_provider_redirect_uri"` // redirect URI of our clients at identity providers
	}{
		i.issuer, address(keysPath), address("/oauth"), address("/oauth/token"), address("/oauth/device_authorization"),
		[]string{"code", "id_token"},
		[]string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
		[]string{"S256"}, []string{"none"}, []string{"public"}, []string{ES256, RS256},
		address("/oauth/callback"),
	})
	serve(w, document)
}

// serveKeys serves the stored keys. If the store cannot be reached, it serves the last
// known keys, because they still verify valid tokens.
func (i *Issuer) serveKeys(w http.ResponseWriter, r *http.Request) {
	age := maxKeysAge
	if i.stale.Load() {
		age = 0
	}
	_, _ = i.refresh(r.Context(), age) // on an error, the last known keys are served
	serve(w, i.ensurePaired(r.Context()).document)
}

func serve(w http.ResponseWriter, document []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=60")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(document)
}
