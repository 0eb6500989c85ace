package factor

import (
	"encoding/json"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

// newChecker returns a checker without a database, which is enough for passkeys.
func newChecker(f *testing.F) *Checker {
	f.Helper()
	c, err := New(nil, &url.URL{Scheme: "http", Host: "localhost:8080"}, secret.NewKey(), time.Now)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// Recorded responses of an authenticator to the challenge.
const (
	fuzzChallenge = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"
	fuzzMade      = `{"id":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","rawId":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","respo` +
		`nse":{"attestationObject":"o2NmbXRkbm9uZWdhdHRTdG10oGhhdXRoRGF0YVieSZYN5YgOjGh0NBcPZHZgW4_krrmih` +
		`jLHmVzzuoMdl2NFAAAAAAAAAAAAAAAAAAAAAAAAAAAAGkNaM1JHWjNHTFlXSEhRT1laTEhOT1hWWFlPpQECAyYgASFYIArIR` +
		`GhNqn4qc1nmSOvDObC1HhC6oBfZApzlijgJRXl4IlggAL_SysBdpKeUKLvOv-2sHIzWft7Mqsg7B4kTgr18t14","clientD` +
		`ataJSON":"eyJjaGFsbGVuZ2UiOiJNREV5TXpRMU5qYzRPV0ZpWTJSbFpqQXhNak0wTlRZM09EbGhZbU5rWldZIiwiY3Jvc3` +
		`NPcmlnaW4iOmZhbHNlLCJvcmlnaW4iOiJodHRwOi8vbG9jYWxob3N0OjgwODAiLCJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIn` +
		`0"},"type":"public-key"}`
	fuzzSigned = `{"id":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","rawId":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","respo` +
		`nse":{"authenticatorData":"SZYN5YgOjGh0NBcPZHZgW4_krrmihjLHmVzzuoMdl2MFAAAAAQ","clientDataJSON":` +
		`"eyJjaGFsbGVuZ2UiOiJNREV5TXpRMU5qYzRPV0ZpWTJSbFpqQXhNak0wTlRZM09EbGhZbU5rWldZIiwiY3Jvc3NPcmlnaW4` +
		`iOmZhbHNlLCJvcmlnaW4iOiJodHRwOi8vbG9jYWxob3N0OjgwODAiLCJ0eXBlIjoid2ViYXV0aG4uZ2V0In0","signature` +
		`":"MEUCIQCjLsQkK9E-9M6TSuZf-7l9D5u2reAEXLgK38uOPscgZQIgfu_eR3-i0qqJ6Z9IoL5SsI4KIRXXoHG_bZZH7bAS5` +
		`Ts","userHandle":"vZkGZBBd5BkxKJ5IXcPxXUZKIyPISUmxsHA2eW2ZSRE"},"type":"public-key"}`
)

// FuzzPasskeyAnswer checks that every accepted assertion has signed the challenge on one of our pages.
func FuzzPasskeyAnswer(f *testing.F) {
	s := newChecker(f)
	a := passkeyUser{
		Account: resource.Account{UID: "0000000000000000000000000000000000000000/0000000000000000", Email: "a@b.test"},
	}
	f.Add([]byte(fuzzMade))
	f.Add([]byte(fuzzSigned))
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{}}`))
	question := webauthn.SessionData{
		Challenge: fuzzChallenge, RelyingPartyID: "localhost", UserID: a.WebAuthnID(),
		UserVerification: protocol.VerificationRequired,
	}
	f.Fuzz(func(t *testing.T, credential []byte) {
		ours := func(c protocol.CollectedClientData) {
			if c.Challenge != fuzzChallenge || c.Origin != "http://localhost:8080" {
				t.Errorf("an answer to %q of %q is taken", c.Challenge, c.Origin)
			}
		}
		if parsed, err := protocol.ParseCredentialCreationResponseBytes(credential); err == nil {
			if made, err := s.webauthn.CreateCredential(a, question, parsed); err == nil {
				ours(parsed.Response.CollectedClientData)
				if detail, err := json.Marshal(made); err != nil ||
					json.Unmarshal(detail, &webauthn.Credential{}) != nil {
					t.Errorf("a passkey that cannot be kept: %v", err)
				}
			}
		}
		if parsed, err := protocol.ParseCredentialRequestResponseBytes(credential); err == nil {
			if _, err := s.webauthn.ValidateLogin(a, question, parsed); err == nil {
				t.Error("an account without passkeys has one")
			}
		}
	})
}

var recoveryForm = regexp.MustCompile(`^[A-Z2-7]*$`)

// FuzzRecoveryCode checks that readRecoveryCode turns any text into valid letters, and does not change its own result.
func FuzzRecoveryCode(f *testing.F) {
	f.Add("ABCDE-FGH01")
	f.Fuzz(func(t *testing.T, code string) {
		if got := readRecoveryCode(code); !recoveryForm.MatchString(got) || readRecoveryCode(got) != got {
			t.Errorf("%q is read as the recovery code %q", code, got)
		}
	})
}
