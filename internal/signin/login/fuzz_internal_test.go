package login

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

// fuzzed returns a service with only what parsing needs.
func fuzzed(f *testing.F) *Service {
	f.Helper()
	origin := &url.URL{Scheme: "http", Host: "localhost:8080"}
	s := &Service{origin: origin, cfg: Config{Key: secret.NewKey(), Now: func() time.Time {
		return time.Unix(1_900_000_000, 0)
	}}}
	var err error
	if s.webauthn, err = newWebAuthn(origin); err != nil {
		f.Fatal(err)
	}
	return s
}

func withCookie(t *testing.T, name, value string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: name, Value: value})
	return r
}

// FuzzFlowCookie presents cookies. Only one that we sealed is a flow, under
// its own name and until it expires.
func FuzzFlowCookie(f *testing.F) {
	s := fuzzed(f)
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	f.Add(id, "x", []byte(`{"id":"`+id+`","exp":1900000001,"for":"command","leg":"`+id+`.`+id+`","idp":"a/b"}`))
	f.Add(id, "", []byte(`{"id":"`+id+`","exp":1900000000}`))
	f.Add("../"+id, "eyJ9", []byte(`null`))
	f.Fuzz(func(t *testing.T, id, value string, plain []byte) {
		if s.loadFlow(withCookie(t, flowCookie+id, value), id) != nil {
			t.Errorf("%q, which nobody sealed, is a flow", value)
		}
		sealed := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(sealedFlow, plain))
		got := s.loadFlow(withCookie(t, flowCookie+id, sealed), id)
		if got != nil && (got.ID != id || got.Expires <= 1_900_000_000 || !flowID.MatchString(id)) {
			t.Errorf("%s is the flow %q", plain, id)
		}
		if leg := s.flowForState(withCookie(t, flowCookie+id, sealed), id+"."+id); leg != nil &&
			(leg.UpstreamState != id+"."+id || leg.Provider == "") {
			t.Errorf("%s has the leg %q", plain, id)
		}
		other := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal("passkey", plain))
		if s.loadFlow(withCookie(t, flowCookie+id, other), id) != nil {
			t.Error("what was sealed for something else is a flow")
		}
	})
}

// What a device answered to the challenge below, once.
const (
	fuzzChallenge = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"
	fuzzMade      = `{"id":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","rawId":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","response":{"attestationObject":"o2NmbXRkbm9uZWdhdHRTdG10oGhhdXRoRGF0YVieSZYN5YgOjGh0NBcPZHZgW4_krrmihjLHmVzzuoMdl2NFAAAAAAAAAAAAAAAAAAAAAAAAAAAAGkNaM1JHWjNHTFlXSEhRT1laTEhOT1hWWFlPpQECAyYgASFYIArIRGhNqn4qc1nmSOvDObC1HhC6oBfZApzlijgJRXl4IlggAL_SysBdpKeUKLvOv-2sHIzWft7Mqsg7B4kTgr18t14","clientDataJSON":"eyJjaGFsbGVuZ2UiOiJNREV5TXpRMU5qYzRPV0ZpWTJSbFpqQXhNak0wTlRZM09EbGhZbU5rWldZIiwiY3Jvc3NPcmlnaW4iOmZhbHNlLCJvcmlnaW4iOiJodHRwOi8vbG9jYWxob3N0OjgwODAiLCJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIn0"},"type":"public-key"}`
	fuzzSigned    = `{"id":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","rawId":"Q1ozUkdaM0dMWVdISFFPWVpMSE5PWFZYWU8","response":{"authenticatorData":"SZYN5YgOjGh0NBcPZHZgW4_krrmihjLHmVzzuoMdl2MFAAAAAQ","clientDataJSON":"eyJjaGFsbGVuZ2UiOiJNREV5TXpRMU5qYzRPV0ZpWTJSbFpqQXhNak0wTlRZM09EbGhZbU5rWldZIiwiY3Jvc3NPcmlnaW4iOmZhbHNlLCJvcmlnaW4iOiJodHRwOi8vbG9jYWxob3N0OjgwODAiLCJ0eXBlIjoid2ViYXV0aG4uZ2V0In0","signature":"MEUCIQCjLsQkK9E-9M6TSuZf-7l9D5u2reAEXLgK38uOPscgZQIgfu_eR3-i0qqJ6Z9IoL5SsI4KIRXXoHG_bZZH7bAS5Ts","userHandle":"vZkGZBBd5BkxKJ5IXcPxXUZKIyPISUmxsHA2eW2ZSRE"},"type":"public-key"}`
)

// FuzzPasskeyAnswer presents assertions. Every one that is accepted answers
// the challenge, on one of our pages.
func FuzzPasskeyAnswer(f *testing.F) {
	s := fuzzed(f)
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

// FuzzClaims presents claims of a provider. Those that are kept are bounded
// and can be stored.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"groups":["a","b"],"email":"a@b.test","email_verified":true,"oid":"x"}`), "groups", "sub", true)
	f.Add([]byte(`{"groups":"a","email_verified":"true"}`), "groups", "sub", false)
	f.Add([]byte(`{"groups":[1,null,{"a":[]},""],"email":1,"name":["x"]}`), "groups", "", false)
	f.Add([]byte(`{"":"x","email":"a\u0000@b.test"}`), "", "a\x00", false)
	f.Fuzz(func(t *testing.T, text []byte, claim, subject string, byObject bool) {
		var claims map[string]any
		if json.Unmarshal(text, &claims) != nil {
			return
		}
		p := resource.IdentityProvider{OIDC: &resource.OIDC{GroupsClaim: claim}}
		if byObject {
			p.OIDC.CorrelationRule = resource.CorrelationObjectID
		}
		got, err := readClaims(p, &oidc.IDToken{Subject: subject}, claims, "raw")
		if err != nil {
			return
		}
		if got.subject == "" || len(got.subject) > 2048 || !readable(got.subject) || len(got.email) > 254 ||
			!readable(got.email) {
			t.Errorf("subject %q, e-mail %q", got.subject, got.email)
		}
		if len(got.groups) > maxGroups {
			t.Errorf("%d groups", len(got.groups))
		}
		for _, g := range got.groups {
			if g == "" || len(g) > maxGroup {
				t.Errorf("a group %q", g)
			}
		}
		if got.emailVerified && claims["email_verified"] != true && claims["email_verified"] != "true" {
			t.Errorf("%v is verified", claims["email_verified"])
		}
		for name, value := range claims {
			if shown := text2(name, value); strings.ContainsAny(shown, "\r\n\x00") || len(shown) > 500 {
				t.Errorf("shown as %q", shown)
			}
		}
	})
}

// text2 returns a claim as the trial page shows it.
func text2(name string, value any) string { return shortText(name) + " " + claimText(value) }

var (
	userForm     = regexp.MustCompile(`^[` + userLetters + `]*$`)
	recoveryForm = regexp.MustCompile(`^[A-Z2-7]*$`)
)

// FuzzCodes parses codes as people type them and programs show them.
func FuzzCodes(f *testing.F) {
	f.Add("bcdf-ghjk")
	f.Add("ABCDE-FGH01")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("http://127.0.0.1:1/?x#y")
	f.Add("eyJpbnZpdGUiOiJhIiwic2VjcmV0IjoiQUEifQ")
	f.Fuzz(func(t *testing.T, code string) {
		if got := readUserCode(code); !userForm.MatchString(got) || readUserCode(shownUserCode(got)) != got {
			t.Errorf("%q is read as the user code %q", code, got)
		}
		if got := readRecoveryCode(code); !recoveryForm.MatchString(got) || readRecoveryCode(got) != got {
			t.Errorf("%q is read as the recovery code %q", code, got)
		}
		if got := checkCode(code); len(got) != 9 {
			t.Errorf("%q is checked by %q", code, got)
		}
		if h, err := encryptFor(code, "token", "refresh"); err == nil && (strings.Contains(string(h.Token), "token") ||
			len(h.Refresh) == 0) {
			t.Errorf("%q gets the token in the plain", code)
		}
		if p, err := readInvite(code); err == nil && (p.UID == "" || len(p.Digest) == 0) {
			t.Errorf("%q is the invite %+v", code, p)
		}
		if u, ok := loopback(code); ok && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" &&
			u.Hostname() != "::1" {
			t.Errorf("%q leads to %q", code, u.Host)
		}
	})
}
