package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/fault"
)

const (
	testKeysPath  = "/jwks"
	testTokenPath = "/token"
	testTokenLife = time.Hour
	maxTestClaims = 64 << 10
)

// A TestIssuer signs any claims for anybody. It stands in for the issuer of a
// pipeline or a cluster that does not exist yet, and therefore belongs on a
// loopback address only.
type TestIssuer struct {
	url    string
	now    func() time.Time
	key    []byte
	signer jose.Signer
	keys   []byte // the JSON Web Key Set
}

// NewTestIssuer returns an issuer with that address. key is PKCS#8, as Key
// returns it; if it is nil a new one is created.
func NewTestIssuer(address string, key []byte, now func() time.Time) (*TestIssuer, error) {
	if key == nil {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make a test key: %w", err)
		}
		if key, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
			return nil, fmt.Errorf("encode a test key: %w", err)
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("read a test key: %w", err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("read a test key: it is not of an elliptic curve")
	}
	id, err := thumbprint(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	i := &TestIssuer{url: address, now: now, key: key}
	if i.signer, err = newTestSigner(id, private); err != nil {
		return nil, err
	}
	i.keys, err = json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &private.PublicKey, KeyID: id, Algorithm: string(algorithm), Use: "sig"},
	}})
	return i, err
}

func newTestSigner(id string, private *ecdsa.PrivateKey) (jose.Signer, error) {
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: id}},
		(&jose.SignerOptions{}).WithType("JWT"),
	)
	if err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", id, err)
	}
	return signer, nil
}

// Key returns the key to pass to NewTestIssuer to get the same issuer again.
func (i *TestIssuer) Key() []byte { return slices.Clone(i.key) }

// Handler serves the discovery document, /jwks, and POST /token, which accepts
// a JSON object of claims, optionally with the name of a preset that supplies
// the rest.
func (i *TestIssuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, i.serveDiscovery)
	mux.HandleFunc("GET "+testKeysPath, func(w http.ResponseWriter, _ *http.Request) { serve(w, i.keys) })
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
		"id_token_signing_alg_values_supported": []string{string(algorithm)},
	})
}

func (i *TestIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	claims, err := i.readClaims(http.MaxBytesReader(w, r.Body, maxTestClaims))
	if err == nil {
		var text string
		if text, err = i.sign(claims); err == nil {
			writeTestJSON(w, http.StatusOK, map[string]string{"token": text})
			return
		}
	}
	f := fault.From(err)
	writeTestJSON(
		w, f.Code.HTTPStatus(), map[string]any{"code": int(f.Code), "message": f.Message, "details": []any{}},
	)
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
	preset, named := given["preset"]
	delete(given, "preset")
	claims := i.common()
	if named {
		name, _ := preset.(string)
		fill, ok := presets[name]
		if !ok {
			names := strings.Join(slices.Sorted(maps.Keys(presets)), ", ")
			return nil, fault.Field("preset", "must be one of %s", names)
		}
		maps.Copy(claims, fill())
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

func (i *TestIssuer) sign(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	signed, err := i.signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign claims: %w", err)
	}
	return signed.CompactSerialize()
}

func writeTestJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

// presets are the claims of a workload's token from well-known issuers, for a
// build of the branch main or for a pod.
var presets = map[string]func() map[string]any{
	"github": githubClaims,
	"github-ids": func() map[string]any { // GitHub's newer form of subjects
		claims := githubClaims()
		claims["sub"] = "repo:example@2001/app@1001:ref:refs/heads/main"
		return claims
	},
	"gitlab": func() map[string]any {
		return map[string]any{
			"sub":          "project_path:example/app:ref_type:branch:ref:main",
			"project_path": "example/app", "project_id": "1001", "namespace_path": "example", "namespace_id": "2001",
			"user_login": "octavia", "user_id": "3001", "user_email": "octavia@example.com",
			"pipeline_id": "4001", "pipeline_source": "push", "job_id": "5001",
			"ref": "main", "ref_type": "branch", "ref_path": "refs/heads/main", "ref_protected": "true",
			"sha": "0123456789abcdef0123456789abcdef01234567", "runner_environment": "gitlab-hosted",
			"ci_config_ref_uri": "gitlab.example.com/example/app//.gitlab-ci.yml@refs/heads/main",
		}
	},
	"kubernetes": func() map[string]any {
		return map[string]any{
			"sub": "system:serviceaccount:default:builder",
			"kubernetes.io": map[string]any{
				"namespace":      "default",
				"serviceaccount": map[string]any{"name": "builder", "uid": "6a1f0c52-7b0e-4a53-9d3c-1f5f0f6f2a11"},
				"pod":            map[string]any{"name": "builder-0", "uid": "c1b7a0de-35f4-4a68-8c07-6d1f1c9f0b22"},
				"node":           map[string]any{"name": "node-1", "uid": "f0d2b8aa-90c1-4f0c-a8b4-2b9a5d7e3c33"},
			},
		}
	},
	"buildkite": func() map[string]any {
		return map[string]any{
			"sub": "organization:example:pipeline:app:ref:refs/heads/main:" +
				"commit:0123456789abcdef0123456789abcdef01234567:step:build",
			"organization_slug": "example", "pipeline_slug": "app", "build_number": 7, "build_source": "webhook",
			"build_branch": "main", "build_tag": "", "build_commit": "0123456789abcdef0123456789abcdef01234567",
			"step_key": "build", "job_id": "0184990a-477b-4fa8-9968-496074483cee",
			"agent_id": "0184990a-4782-42b5-afc1-16715b10b8ff", "runner_environment": "self-hosted",
		}
	},
}

func githubClaims() map[string]any {
	return map[string]any{
		"sub":        "repo:example/app:ref:refs/heads/main",
		"repository": "example/app", "repository_id": "1001", "repository_visibility": "private",
		"repository_owner": "example", "repository_owner_id": "2001",
		"ref": "refs/heads/main", "ref_type": "branch", "ref_protected": "true", "base_ref": "", "head_ref": "",
		"sha": "0123456789abcdef0123456789abcdef01234567", "event_name": "push",
		"actor": "octavia", "actor_id": "3001",
		"workflow": "build", "workflow_ref": "example/app/.github/workflows/build.yml@refs/heads/main",
		"job_workflow_ref": "example/app/.github/workflows/build.yml@refs/heads/main",
		"run_id":           "4001", "run_number": "7", "run_attempt": "1", "runner_environment": "github-hosted",
	}
}
