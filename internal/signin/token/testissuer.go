package token

import (
	"bufio"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const (
	testKeysPath  = "/jwks"
	testTokenPath = "/token"
	testTokenLife = time.Hour
	maxTestClaims = 64 << 10 // largest request body in bytes
)

// presetsJSON contains the claims of workload tokens from well-known issuers, for a
// build of the branch main or for a pod. github-ids has GitHub's newer form of
// subjects.
//
//go:embed presets.json
var presetsJSON []byte

// A TestIssuer signs any claims for anybody. It replaces the issuer of a pipeline or
// a cluster that does not exist yet. It must only listen on a loopback address,
// because anybody who reaches it can get any token.
type TestIssuer struct {
	url  string
	now  func() time.Time
	key  []byte
	keys *keys

	codes testCodes
}

// NewTestIssuer returns an issuer with that address. key is a PKCS#8 key as returned
// by Key; if it is nil, NewTestIssuer creates a new key.
func NewTestIssuer(address string, key []byte, now func() time.Time) (*TestIssuer, error) {
	if key == nil {
		var err error
		if key, err = newPrivateKey(ES256); err != nil {
			return nil, err
		}
	}
	s, err := newSigner(key, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read a test key: %w", err)
	}
	keys, err := newKeys([]signer{s}, nil)
	return &TestIssuer{url: address, now: now, key: key, keys: keys}, err
}

// Key returns the key in PKCS#8. NewTestIssuer with this key returns the same issuer
// again.
func (i *TestIssuer) Key() []byte { return slices.Clone(i.key) }

// Handler serves the discovery document, /jwks, and POST /token, which accepts a JSON
// object of claims. Its member preset is optional and names a preset with further
// claims. /authorize is a page on which people sign in with the authorization code
// flow, whose codes /token accepts, too.
func (i *TestIssuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, i.serveDiscovery)
	mux.HandleFunc("GET "+testKeysPath, func(w http.ResponseWriter, _ *http.Request) { serve(w, i.keys.document) })
	mux.HandleFunc("POST "+testTokenPath, i.serveToken)
	mux.HandleFunc("GET "+testSignInPath, i.showSignIn)
	mux.HandleFunc("POST "+testSignInPath, i.signIn)
	return mux
}

func (i *TestIssuer) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	writeTestJSON(w, http.StatusOK, map[string]any{
		"issuer":                                i.url,
		"jwks_uri":                              i.url + testKeysPath,
		"token_endpoint":                        i.url + testTokenPath,
		"authorization_endpoint":                i.url + testSignInPath,
		"response_types_supported":              []string{"code", "id_token"},
		"scopes_supported":                      []string{"openid", "profile", "email", "groups"},
		"code_challenge_methods_supported":      []string{"S256"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{ES256},

		"authorization_response_iss_parameter_supported": true,
	})
}

func (i *TestIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	body := bufio.NewReader(http.MaxBytesReader(w, r.Body, maxTestClaims))
	if isForm(r, body) {
		r.Body = io.NopCloser(body)
		i.serveCode(w, r)
		return
	}
	claims, err := i.readClaims(body)
	var text string
	if err == nil {
		text, err = i.keys.signer(i.now()).encode(claims)
	}
	if err != nil {
		f := fault.From(err)
		writeTestJSON(w, f.Code.HTTPStatus(),
			map[string]any{"code": int(f.Code), "message": f.Message, "details": []any{}})
		return
	}
	writeTestJSON(w, http.StatusOK, map[string]string{"token": text})
}

// readClaims returns the common claims, overridden by the claims of the preset and
// then by the claims in the body. A null in the body removes a claim.
func (i *TestIssuer) readClaims(body io.Reader) (map[string]any, error) {
	given := map[string]any{}
	dec := json.NewDecoder(body)
	dec.UseNumber()
	if err := dec.Decode(&given); err != nil {
		return nil, fault.Field("body", "must be a JSON object of claims")
	}
	claims := i.common()
	if preset, ok := given["preset"]; ok {
		delete(given, "preset")
		var presets map[string]map[string]any
		if err := json.Unmarshal(presetsJSON, &presets); err != nil {
			return nil, err
		}
		name, _ := preset.(string)
		if presets[name] == nil {
			return nil, fault.Field("preset", "must be one of %s",
				strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
		}
		maps.Copy(claims, presets[name])
	}
	maps.Copy(claims, given)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims, nil
}

// common returns the default claims of every token. The audience is the server that
// runs the issuer.
func (i *TestIssuer) common() map[string]any {
	issued := i.now()
	claims := map[string]any{
		"iss": i.url, "sub": "test", "aud": i.url, "jti": rand.Text(),
		"iat": issued.Unix(), "nbf": issued.Unix(), "exp": issued.Add(testTokenLife).Unix(),
	}
	if u, err := url.Parse(i.url); err == nil {
		claims["aud"] = u.Scheme + "://" + u.Host
	}
	return claims
}

func writeTestJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // this fails only if the client has gone
}
