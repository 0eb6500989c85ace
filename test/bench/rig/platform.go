package rig

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// A Platform is a fake platform that issues tokens for workloads and people. It serves its public keys until the
// measurement ends. The ID of each key is the name of its algorithm.
type Platform struct {
	RSA *rsa.PrivateKey
	EC  *ecdsa.PrivateKey
	URL string
}

// NewPlatform starts a platform with new keys.
func (m *Measurement) NewPlatform(ctx context.Context) *Platform {
	p := &Platform{
		RSA: Must(rsa.GenerateKey(rand.Reader, 2048)),
		EC:  Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	}
	b64 := base64.RawURLEncoding.EncodeToString
	point := Must(p.EC.PublicKey.Bytes()) // the bytes are 4, then X, then Y
	keys := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"RS256","n":%q,"e":"AQAB"},`+
		`{"kty":"EC","kid":"ES256","crv":"P-256","x":%q,"y":%q}]}`,
		b64(p.RSA.N.Bytes()), b64(point[1:33]), b64(point[33:]))
	p.URL = m.ServeHandler(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			fmt.Fprint(w, keys)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, p.URL+"/keys")
	}))
	return p
}

// JobSubject returns the subject in the tokens of the n-th workload.
func JobSubject(n int) string { return fmt.Sprintf("repo:org/app%d:ref:refs/heads/main", n) }

// JobPattern returns a pattern for the subject of the n-th workload. It matches with and without the IDs that GitHub
// adds.
func JobPattern(n int) string {
	return fmt.Sprintf(`repo:org(@\d+)?/app%d(@\d+)?:ref:refs/heads/main`, n)
}

// JobToken returns a new token for the n-th workload, with the claims of GitHub Actions.
func (p *Platform) JobToken(alg string, n int, audience string) string {
	return p.Sign(alg, map[string]any{
		"sub": JobSubject(n), "aud": audience, "repository": "org/app", "repository_id": "1001",
		"repository_owner": "org", "repository_owner_id": "2001", "ref": "refs/heads/main", "ref_type": "branch",
		"sha": "0123456789abcdef0123456789abcdef01234567", "actor": "octavia", "workflow": "build",
		"run_id": "4001", "run_attempt": "1", "event_name": "push", "runner_environment": "github-hosted",
		"workflow_ref": "org/app/.github/workflows/build.yml@refs/heads/main",
	})
}

// Sign adds the issuer, an ID and times to the claims, and returns a signed token with them.
func (p *Platform) Sign(alg string, claims map[string]any) string {
	issued := time.Now()
	claims["iss"], claims["jti"] = p.URL, rand.Text()
	claims["iat"], claims["nbf"], claims["exp"] = issued.Unix(), issued.Unix(), issued.Add(time.Hour).Unix()
	b64 := base64.RawURLEncoding.EncodeToString
	input := b64([]byte(`{"alg":"`+alg+`","typ":"JWT","kid":"`+alg+`"}`)) + "." + b64(Must(json.Marshal(claims)))
	sum := sha256.Sum256([]byte(input))
	if alg == "RS256" {
		return input + "." + b64(Must(rsa.SignPKCS1v15(nil, p.RSA, crypto.SHA256, sum[:])))
	}
	r, s, err := ecdsa.Sign(rand.Reader, p.EC, sum[:])
	Check(err)
	return input + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// Workloads is the number of identities that exchange the tokens of a platform.
const Workloads = 64
