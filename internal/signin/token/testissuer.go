package token

import (
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
	maxTestClaims = 64 << 10
)

// presetsJSON has the claims of a workload's token from well-known issuers, for
// a build of the branch main or for a pod. github-ids is GitHub's newer form of
// subjects.
//
//go:embed presets.json
var presetsJSON []byte

// A TestIssuer signs any claims for anybody. It stands in for the issuer of a
// pipeline or a cluster that does not exist yet, and therefore belongs on a
// loopback address only.
type TestIssuer struct {
	url  string
	now  func() time.Time
	key  []byte
	keys *keys
}

// NewTestIssuer returns an issuer with that address. key is PKCS#8, as Key
// returns it; if it is nil a new one is created.
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
	return &TestIssuer{address, now, key, keys}, err
}

// Key returns the key to pass to NewTestIssuer to get the same issuer again.
func (i *TestIssuer) Key() []byte { return slices.Clone(i.key) }

// Handler serves the discovery document, /jwks, and POST /token, which accepts
// a JSON object of claims, optionally with the name of a preset that supplies
// the rest.
func (i *TestIssuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, i.serveDiscovery)
	mux.HandleFunc("GET "+testKeysPath, func(w http.ResponseWriter, _ *http.Request) { serve(w, i.keys.document) })
	mux.HandleFunc("POST "+testTokenPath, i.serveToken)
	return mux
}

func (i *TestIssuer) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	writeTestJSON(w, http.StatusOK, map[string]any{
		"issuer":                                i.url,
		"jwks_uri":                              i.url + testKeysPath,
		"token_endpoint":                        i.url + testTokenPath,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{ES256},
	})
}

func (i *TestIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	claims, err := i.readClaims(http.MaxBytesReader(w, r.Body, maxTestClaims))
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

// readClaims returns the claims of the body on top of those of its preset, on
// top of the common ones. A null removes a claim.
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

// common returns the claims that every token has. The audience is the server
// that runs the issuer.
func (i *TestIssuer) common() map[string]any {
	now := i.now()
	claims := map[string]any{
		"iss": i.url, "sub": "test", "aud": i.url, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(testTokenLife).Unix(),
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
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}
