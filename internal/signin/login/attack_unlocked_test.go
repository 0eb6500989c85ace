package login_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// headlessQuery returns the query of a program that shows a public key, and the key.
func headlessQuery(t *testing.T) (query, code string) {
	t.Helper()
	key := must[*ecdh.PrivateKey](t)(ecdh.X25519().GenerateKey(rand.Reader))
	code = base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	return "client_id=cli&headless_code=" + code, code
}

// pollFor polls with a device code and returns the response.
func (x *site) pollFor(t *testing.T, device string) (status int, body string) {
	t.Helper()
	x.clock.move(5 * time.Second)
	return x.redeem(
		t, "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", "tv", "device_code", device,
	)
}

// TestAttackUnlockedBrowser: a person at a browser in which somebody else has signed in a while ago gets no token,
// neither by a redirect, nor by a code, nor for a public key, nor for a device.
func TestAttackUnlockedBrowser(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b := x.browser(t)
		b.signIn()
		x.clock.move(11 * time.Minute)
		for name, more := range map[string]string{
			"a token": "", "a code": "&code_challenge_method=S256&code_challenge=" + s256(strings.Repeat("v", 43)),
		} {
			flow := b.start(forCommand(more))
			if page := b.get("/signin?flow=" + flow); strings.Contains(page.body, `value="allow"`) {
				t.Errorf("%s: the page asks for a click and not for a credential", name)
			}
			if a := b.allow(flow); a.location != "/signin?flow="+flow {
				t.Errorf("%s was issued: %d %s", name, a.status, a.location)
			}
		}
		query, code := headlessQuery(t)
		b.allow(b.start(query))
		if _, err := x.Headless(t.Context(), code); !errors.Is(err, fault.NotFound) {
			t.Errorf("a headless program: %v", err)
		}
		device, flow := x.deviceFlow(t, b)
		b.allow(flow)
		if status, body := x.pollFor(t, device); fieldOf(t, body, "error") != "authorization_pending" {
			t.Errorf("a device: %d %s", status, body)
		}
	})
}

// TestAttackUnlockedProvider: a session at a provider is not enough for a token either. The provider must ask for a
// credential, with and without a session here, and if another identity is requested.
func TestAttackUnlockedProvider(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		p := newProvider(t)
		idp := x.keep(t, p)
		for name, signedIn := range map[string]bool{"without a session": false, "with a session": true} {
			b := x.browser(t)
			if signedIn {
				b.toConsole(p, string(idp.UID))
			}
			asked := b.ask(idp) // fails if it leads to the consent page
			if !strings.Contains(asked, "prompt=login") {
				t.Errorf("%s: the provider is asked %s", name, asked)
			}
			p.claims["auth_time"] = x.clock.now().Add(-time.Hour).Unix()
			if a := b.get(p.answerTo(t, asked)); strings.Contains(a.location, "token=") {
				t.Errorf("%s: the provider has not asked for a credential: %d %s", name, a.status, a.location)
			}
			delete(p.claims, "auth_time")
		}
	})
}

// toConsole signs in a browser for the console with a provider, which does not ask for a credential.
func (b *browser) toConsole(p *provider, idp string) {
	b.t.Helper()
	_, flow, _ := strings.Cut(b.get("/signin").location, "flow=")
	asked := b.get("/signin/provider?flow=" + flow + "&provider=" + idp).location
	if a := b.get(p.answerTo(b.t, asked)); a.location != "/account" || strings.Contains(asked, "prompt=") {
		b.t.Fatalf("signing in with a provider led to %d %s after %s", a.status, a.location, asked)
	}
}

// TestSignInForProgram: a program gets its token after one click within ten minutes after a sign-in, and later after
// one sign-in. A device and a headless program also need the click then, because an attacker may have sent the code.
func TestSignInForProgram(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	x.clock.move(9 * time.Minute)
	flow := b.start(forCommand(""))
	if page := b.get("/signin?flow=" + flow); !strings.Contains(page.body, `value="allow"`) {
		t.Errorf("after nine minutes the page does not ask for a click:\n%s", page.body)
	}
	if a := b.allow(flow); query(t, a.location).Get("token") == "" {
		t.Errorf("after nine minutes: %d %s", a.status, a.location)
	}
	x.clock.move(2 * time.Minute)
	flow = b.start(forCommand(""))
	page := b.get("/signin?flow=" + flow)
	if page.status != http.StatusOK || !strings.Contains(page.body, "You signed in a while ago") ||
		!strings.Contains(page.body, ownerEmail) {
		t.Errorf("after eleven minutes: %d\n%s", page.status, page.body)
	}
	if a := b.password(flow, ownerEmail, password); query(t, a.location).Get("token") == "" {
		t.Errorf("after signing in again: %d %s", a.status, a.location)
	}
	x.clock.move(11 * time.Minute)
	device, flow := x.deviceFlow(t, b)
	if a := b.password(flow, ownerEmail, password); a.location != "/signin?flow="+flow {
		t.Errorf("a device, after signing in again: %d %s", a.status, a.location)
	}
	if page := b.get("/signin?flow=" + flow); !strings.Contains(page.body, `value="allow"`) {
		t.Errorf("a device, after signing in again:\n%s", page.body)
	}
	b.allow(flow)
	if status, body := x.pollFor(t, device); fieldOf(t, body, "access_token") == "" {
		t.Errorf("a device: %d %s", status, body)
	}
}

// TestDenyStale: denying a program needs no credential.
func TestDenyStale(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	device, flow := x.deviceFlow(t, b)
	x.clock.move(9 * time.Minute)
	csrf := b.csrf()
	x.clock.move(30 * time.Second)
	b.set([]*http.Cookie{{Name: "hf_fresh", Value: "", Path: "/", MaxAge: -1}})
	b.post("/signin/confirm", "flow", flow, "csrf", csrf, "answer", "deny")
	if _, body := x.pollFor(t, device); fieldOf(t, body, "error") != "access_denied" {
		t.Errorf("a denied device: %s", body)
	}
}
