package e2e_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// fakeKeys returns the keys that all fake issuers share. The keys are created only once, because that is slow.
var fakeKeys = sync.OnceValues(func() (*rsa.PrivateKey, *ecdsa.PrivateKey) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return r, e
})

// A fakeIssuer signs any claims, even claims that no real issuer would sign. It counts the requests for its keys.
type fakeIssuer struct {
	url      string
	asked    atomic.Int32 // number of requests for its discovery document and its keys
	strayed  atomic.Int32 // number of all other requests
	audience string
}

// newFakeIssuer starts an issuer with an RSA key and an EC key. The server w is the audience of its tokens.
func newFakeIssuer(t *testing.T, w *world) *fakeIssuer {
	t.Helper()
	f := &fakeIssuer{audience: w.AuthURL}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		f.asked.Add(1)
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, f.url, f.url+"/keys")
	case "/keys":
		f.asked.Add(1)
		_, _ = w.Write(fakeKeySet())
	default:
		f.strayed.Add(1)
	}
}

// fakeKeySet returns the public keys, with the IDs rsa and ec.
func fakeKeySet() []byte {
	r, e := fakeKeys()
	b64 := base64.RawURLEncoding.EncodeToString
	point, err := e.PublicKey.Bytes() // the bytes are 4, then X, then Y
	if err != nil {
		panic(err)
	}
	set, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig", "n": b64(r.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": "ec", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
	}})
	if err != nil {
		panic(err)
	}
	return set
}

// A signer returns the signature for the first two parts of a token.
type signer func(input []byte) []byte

func withRSA(input []byte) []byte {
	r, _ := fakeKeys()
	sum := sha256.Sum256(input)
	sig, err := rsa.SignPKCS1v15(nil, r, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return sig
}

func withEC(input []byte) []byte {
	_, e := fakeKeys()
	sum := sha256.Sum256(input)
	r, s, err := ecdsa.Sign(rand.Reader, e, sum[:])
	if err != nil {
		panic(err)
	}
	return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
}

// jws returns a token with the given header and payload, whatever they contain.
func jws(header, payload string, sign signer) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(payload))
	return input + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(input)))
}

const rsaHeader, ecHeader = `{"alg":"RS256","kid":"rsa","typ":"JWT"}`, `{"alg":"ES256","kid":"ec","typ":"JWT"}`

// claims returns the claims of a valid token, with changes. A nil value in change removes the claim.
func (f *fakeIssuer) claims(change map[string]any) string {
	now := time.Now()
	claims := map[string]any{
		"iss": f.url, "sub": "job", "aud": f.audience, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	b, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// token returns a valid token with changed claims.
func (f *fakeIssuer) token(change map[string]any) string {
	return jws(rsaHeader, f.claims(change), withRSA)
}

// workload creates an identity for the subject job at an issuer, and returns the UID of the identity. change may edit
// the claim match; it may be nil.
func (w *world) workload(t *testing.T, issuer string, change func(*iampb.Identity_ClaimMatch)) string {
	t.Helper()
	match := &iampb.Identity_ClaimMatch{
		Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: issuer}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "job"},
	}
	if change != nil {
		change(match)
	}
	return w.identify(t, &iampb.Identity{Name: "workload", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: match}})
}

// identify creates an identity in the organization and returns its UID.
func (w *world) identify(t *testing.T, i *iampb.Identity) string {
	t.Helper()
	return must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.CreateIdentityRequest{
		Parent: string(w.Organization), Identity: i,
	}).GetUid()
}

// exchangeHTTP exchanges a bearer token as the documentation for clients describes: the request is a form, and the
// answer must have exactly the documented fields.
func (w *world) exchangeHTTP(t *testing.T, bearer string, form url.Values) (*oidcpb.RawToken, *status.Status) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		w.BaseURL+"/sts/exchange", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer "+bearer)
	got := w.roundTrip(t, r)
	if got.status != http.StatusOK {
		return nil, got.refusal(t)
	}
	return got.rawToken(t), nil
}

// rawToken decodes an answer, and fails the test if the answer has other fields than documented.
func (r reply) rawToken(t *testing.T) *oidcpb.RawToken {
	t.Helper()
	var answer struct {
		Token, RefreshToken *string
		Expiry              time.Time
	}
	strictly(t, r.body, &answer)
	if answer.Token == nil || answer.RefreshToken == nil {
		t.Fatalf("a field is missing in the answer: %s", r.body)
	}
	if exp, _ := said(t, *answer.Token)["exp"].(float64); answer.Expiry.Unix() != int64(exp) {
		t.Errorf("the token expires at %v, but the answer says %v", int64(exp), answer.Expiry)
	}
	return &oidcpb.RawToken{Token: *answer.Token, RefreshToken: *answer.RefreshToken}
}

func strictly(t *testing.T, body string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

// refusal decodes an error of the token service. The error has the same form as every other error, with the code as
// an additional field.
func (r reply) refusal(t *testing.T) *status.Status {
	t.Helper()
	var fields map[string]json.RawMessage
	strictly(t, r.body, &fields)
	st := r.fault(t)
	if len(fields) != 3 || len(r.body) > 4096 || len(st.Details()) == 0 {
		t.Errorf("an error of %d bytes, want only code, message and details: %s", len(r.body), r.body)
	}
	return st
}

// exchangeGRPC exchanges a bearer token over gRPC.
func (w *world) exchangeGRPC(t *testing.T, bearer string, form url.Values) (*oidcpb.RawToken, *status.Status) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+bearer)
	out, err := oidcpb.NewSecurityTokenServiceClient(w.conn).Exchange(ctx, &oidcpb.ExchangeRequest{
		Aud:              form["aud"],
		Identity:         form.Get("identity"),
		Cap:              form["cap"],
		Scopes:           form["scopes"],
		IdentityProvider: form.Get("identity_provider"),
	})
	return out, status.Convert(err)
}

// exchange exchanges a bearer token for an API token over HTTP. It fails the test if the server refuses.
func (w *world) exchange(t *testing.T, bearer, identity string) string {
	t.Helper()
	got, st := w.exchangeHTTP(t, bearer, w.wish(identity))
	if st != nil {
		t.Fatalf("the exchange was refused: %v", st)
	}
	return got.GetToken()
}

// wish returns the form that requests an API token for an identity.
func (w *world) wish(identity string) url.Values {
	return url.Values{"aud": {w.BaseURL}, "identity": {identity}}
}

// A hangingIssuer accepts requests and does not answer them until it is released.
type hangingIssuer struct {
	url     string
	asked   chan struct{}
	release chan struct{}
}

func newHangingIssuer(t *testing.T) *hangingIssuer {
	t.Helper()
	h := &hangingIssuer{asked: make(chan struct{}, 100), release: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.asked <- struct{}{}
		<-h.release
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}
