package login_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Each test in this file uses a part of one ceremony in another ceremony: for another account, in another sign-in, or
// at another time.

const otherEmail = "other@example.test"

// other creates a second account in the organization, with the owner's
// password.
func (x *site) other(t *testing.T) resource.Account {
	t.Helper()
	owner := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
	a := must[resource.Account](t)(x.addAccount(t, otherEmail))
	return must[resource.Account](t)(x.store.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
		a.Password = owner.Password
		return nil
	}))
}

// signedInAs gives a browser a session.
func (x *site) signedInAs(t *testing.T, email string) *browser {
	t.Helper()
	b := x.browser(t)
	_, flow, _ := strings.Cut(b.get("/signin").location, "flow=")
	if a := b.password(flow, email, password); a.location != "/account" {
		t.Fatalf("signing in led to %d %s\n%s", a.status, a.location, a.body)
	}
	return b
}

// cookies returns the cookies of a browser whose names begin with prefix. The method set copies cookies to another
// browser.
func (b *browser) cookies(prefix string) (all []*http.Cookie) {
	for _, c := range b.Jar.Cookies(must[*url.URL](b.t)(url.Parse(b.x.url))) {
		if strings.HasPrefix(c.Name, prefix) {
			c.Path = "/"
			all = append(all, c)
		}
	}
	return all
}

func (b *browser) set(cookies []*http.Cookie) {
	b.Jar.SetCookies(must[*url.URL](b.t)(url.Parse(b.x.url)), cookies)
}

// TestRegistrationCrossed: a registration ceremony belongs to one account and one session. It expires after 15 minutes,
// so that a person who has typed the password once cannot add passkeys forever.
func TestRegistrationCrossed(t *testing.T) {
	x := sqlite(t)
	x.other(t)
	start := func(b *browser) question {
		return ask(t, b.script("/account/passkeys/start", map[string]any{"csrf": b.csrf(), "current": password}))
	}
	finish := func(b *browser, q question) int {
		return b.script("/account/passkeys", map[string]any{"csrf": b.csrf(),
			"credential": x.authenticator(t).make(q)}).status
	}
	owner, same, other := x.signedInAs(t, ownerEmail), x.signedInAs(t, ownerEmail), x.signedInAs(t, otherEmail)
	for name, b := range map[string]*browser{"another account": other, "another session of the account": same} {
		q := start(owner)
		b.set(owner.cookies("hf_passkey"))
		if status := finish(b, q); status != http.StatusBadRequest {
			t.Errorf("a question to the owner, answered in %s: %d", name, status)
		}
	}
	q := start(owner)
	x.clock.move(16 * time.Minute)
	if status := finish(owner, q); status != http.StatusBadRequest {
		t.Errorf("a question of a quarter of an hour ago: %d", status)
	}
	x.clock.move(time.Minute)
	if status := finish(owner, start(owner)); status != http.StatusOK {
		t.Errorf("an honest registration: %d", status)
	}
}

// TestPasskeyCrossed: a registration is not accepted as an assertion, and an assertion is not accepted as a
// registration. A response is valid only in its own flow.
func TestPasskeyCrossed(t *testing.T) {
	x := sqlite(t)
	x.other(t)
	owner := x.signedInAs(t, ownerEmail)
	d := x.authenticator(t)
	q := ask(t, owner.script("/account/passkeys/start", map[string]any{"csrf": owner.csrf(), "current": password}))
	made := d.make(q)
	if a := owner.script("/account/passkeys", map[string]any{"csrf": owner.csrf(),
		"credential": made}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	second := x.authenticator(t)
	x.signedInAs(t, otherEmail).register(second)

	handleOf := func(credential map[string]any, handle []byte) map[string]any {
		response, _ := credential["response"].(map[string]any)
		response = maps.Clone(response)
		response["userHandle"] = b64(handle)
		credential["response"] = response
		return credential
	}
	for name, forge := range map[string]func(b *browser, flow string) any{
		"a registration": func(b *browser, flow string) any { b.begin(flow); return made },
		"a new registration, to this question": func(b *browser, flow string) any {
			return x.authenticator(t).make(b.begin(flow))
		},
		"an answer to another sign-in of this browser": func(b *browser, flow string) any {
			b.begin(flow)
			return d.sign(b.begin(b.start(forCommand(""))))
		},
		"an answer to a question that another took the place of": func(b *browser, flow string) any {
			old := b.begin(flow)
			b.begin(flow)
			return d.sign(old)
		},
		"an answer with the handle of another account": func(b *browser, flow string) any {
			return handleOf(d.sign(b.begin(flow)), second.handle)
		},
		"an answer with no handle": func(b *browser, flow string) any { return handleOf(d.sign(b.begin(flow)), nil) },
		"one account's passkey after the other's password": func(b *browser, flow string) any {
			b.password(flow, otherEmail, password)
			return d.sign(b.begin(flow))
		},
		"an answer from before a password of another account": func(b *browser, flow string) any {
			c := d.sign(b.begin(flow))
			b.password(flow, otherEmail, password)
			return c
		},
	} {
		b := x.browser(t)
		flow := b.start(forCommand(""))
		if a := b.prove(flow, forge(b, flow)); a.status != http.StatusUnauthorized || b.session() != "" {
			t.Errorf("%s signs in: %d %s", name, a.status, a.body)
		}
	}
	// An assertion is not accepted as a registration.
	q = ask(t, owner.script("/account/passkeys/start", map[string]any{"csrf": owner.csrf(), "current": password}))
	if a := owner.script("/account/passkeys", map[string]any{"csrf": owner.csrf(),
		"credential": d.sign(q)}); a.status != http.StatusBadRequest {
		t.Errorf("an assertion registers a passkey: %d %s", a.status, a.body)
	}
	b := x.browser(t)
	flow := b.start(forCommand(""))
	a := b.prove(flow, d.sign(b.begin(flow)))
	if token := query(t, fieldOf(t, a.body, "location")).Get("token"); x.caller(t, token).Identity != x.owner.Identity {
		t.Errorf("an honest passkey: %d %s", a.status, a.body)
	}
}

// setUpTOTP enables one-time passwords for the account of a browser and
// returns the secret.
func (b *browser) setUpTOTP() (secret string) {
	b.t.Helper()
	a := b.post("/account/totp/start", "csrf", b.csrf(), "current", password)
	secret = strings.ReplaceAll(secretText.FindString(a.body), " ", "")
	code := must[string](b.t)(totp.GenerateCode(secret, b.x.clock.now()))
	if a := b.post("/account/totp", "csrf", b.csrf(), "code", code); a.status != http.StatusOK {
		b.t.Fatalf("%d\n%s", a.status, a.body)
	}
	return secret
}

// TestTOTPCrossed: a one-time password is valid only for the account whose password was right, and a secret that one
// session has shown cannot be enabled in another session.
func TestTOTPCrossed(t *testing.T) {
	x := sqlite(t)
	x.other(t)
	owner, other := x.signedInAs(t, ownerEmail), x.signedInAs(t, otherEmail)
	a := owner.post("/account/totp/start", "csrf", owner.csrf(), "current", password)
	secret := strings.ReplaceAll(secretText.FindString(a.body), " ", "")
	other.set(owner.cookies("hf_totp"))
	other.post(
		"/account/totp", "csrf", other.csrf(), "code", must[string](t)(totp.GenerateCode(secret, x.clock.now())),
	)
	if a := must[resource.Account](t)(x.store.AccountIn(t.Context(), x.org.UID, otherEmail)); len(a.TOTP) > 0 {
		t.Error("a secret that the owner was shown is turned on for another account")
	}
	secrets := map[string]string{ownerEmail: owner.setUpTOTP(), otherEmail: other.setUpTOTP()}
	x.clock.move(time.Minute)
	for email, crossed := range map[string]string{ownerEmail: otherEmail, otherEmail: ownerEmail} {
		b := x.browser(t)
		flow := b.start(forCommand(""))
		b.password(flow, email, password)
		code := must[string](t)(totp.GenerateCode(secrets[crossed], x.clock.now()))
		if a := b.post("/signin/totp", "flow", flow, "code", code); a.status != http.StatusUnauthorized ||
			b.session() != "" {
			t.Errorf("%s with the code of %s: %d", email, crossed, a.status)
		}
		// The flow belonged to account A and then continues with the password of account B. A code of A is refused.
		b.password(flow, crossed, password)
		code = must[string](t)(totp.GenerateCode(secrets[email], x.clock.now()))
		if a := b.post("/signin/totp", "flow", flow, "code", code); a.status != http.StatusUnauthorized ||
			b.session() != "" {
			t.Errorf("a flow that has gone on to %s, with the code of %s: %d", crossed, email, a.status)
		}
	}
}

// TestHalfwayAfterChange: a flow in which the old password was right cannot be finished with a second factor after the
// password was changed.
func TestHalfwayAfterChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, x *site, owner *browser){
		"was changed": func(t *testing.T, x *site, owner *browser) {
			if a := owner.post("/account/password", "csrf", owner.csrf(), "current", password, "password",
				"another violet anchor"); a.status != http.StatusOK {
				t.Fatalf("%d\n%s", a.status, a.body)
			}
		},
		"was reset": func(t *testing.T, x *site, _ *browser) {
			admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
			link, err := x.CreateLink(admin, x.owner.UID, false)
			if err != nil {
				t.Fatal(err)
			}
			b := x.browser(t)
			b.get(link.URL)
			b.post("/link", "password", "another violet anchor")
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := sqlite(t)
			owner := x.signedInAs(t, ownerEmail)
			secret := owner.setUpTOTP()
			d := x.authenticator(t)
			owner.register(d)
			codes := codesIn(owner.post("/account/recovery", "csrf", owner.csrf(), "current", password))
			x.clock.move(time.Minute)
			b := x.browser(t)
			flow := b.start(forCommand(""))
			b.password(flow, ownerEmail, password)
			q := b.begin(flow)
			change(t, x, owner)
			code := must[string](t)(totp.GenerateCode(secret, x.clock.now()))
			for factor, a := range map[string]answer{
				"an app": b.post("/signin/totp", "flow", flow, "code", code), "a recovery code": b.post("/signin/recovery",
					"flow", flow, "recovery", codes[0]),
				"a passkey": b.prove(flow, d.sign(q)),
			} {
				if strings.Contains(a.location+a.body, "token=") || b.session() != "" {
					t.Errorf("the old password and %s sign in: %d", factor, a.status)
				}
			}
			b = x.browser(t)
			flow = b.start(forCommand(""))
			b.password(flow, ownerEmail, "another violet anchor")
			if a := b.post("/signin/totp", "flow", flow, "code", code); !strings.Contains(a.location, "token=") {
				t.Errorf("the new password and the app: %d\n%s", a.status, a.body)
			}
		})
	}
}

// TestPasskeyAfterGuesses: wrong guesses of passwords do not block passkeys.
func TestPasskeyAfterGuesses(t *testing.T) {
	x := sqlite(t)
	d := x.authenticator(t)
	x.signedInAs(t, ownerEmail).register(d)
	b := x.browser(t)
	flow := b.start(forCommand(""))
	for i := range 12 { // accounts whose hashes have cheap parameters, as the owner's
		a := resource.Account{Email: fmt.Sprintf("owner%d@example.test", i), Password: x.owner.Password}
		if _, _, _, err := x.CreateOrganization(t.Context(), fmt.Sprint("other", i), resource.OrgUnspecified, a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 120 { // more guesses than the limit of one network
		b.password(flow, fmt.Sprintf("owner%d@example.test", i/10), "wrong")
	}
	if a := b.password(flow, ownerEmail, password); a.status != http.StatusTooManyRequests {
		t.Fatalf("the address may still guess: %d", a.status)
	}
	if a := b.prove(flow, d.sign(b.begin(flow))); !strings.Contains(a.body, "token=") {
		t.Errorf("a passkey, at the address of who guesses: %d %s", a.status, a.body)
	}
}

// TestGuessesOutside: a person who is signed in can change the password in spite of wrong guesses on the sign-in page.
func TestGuessesOutside(t *testing.T) {
	x := sqlite(t)
	owner := x.signedInAs(t, ownerEmail)
	b := x.browser(t)
	flow := b.start(forCommand(""))
	for range 12 {
		b.password(flow, ownerEmail, "wrong")
	}
	if a := owner.post("/account/password", "csrf", owner.csrf(), "current", password, "password",
		"another violet anchor"); a.status != http.StatusOK {
		t.Errorf("changing the password: %d\n%s", a.status, a.body)
	}
}

// TestOpenBrowser: a change of credentials requires the password. A session is not enough.
func TestOpenBrowser(t *testing.T) {
	x := sqlite(t)
	owner := x.signedInAs(t, ownerEmail)
	owner.register(x.authenticator(t))
	key := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID)).Passkeys[0].ID
	for name, send := range map[string]func(word string) answer{
		"removing a passkey": func(word string) answer {
			return owner.post("/account/passkeys/remove", "csrf", owner.csrf(), "id", b64(key), "current", word)
		},
		"an authenticator app": func(word string) answer {
			return owner.post("/account/totp/start", "csrf", owner.csrf(), "current", word)
		},
	} {
		for _, word := range []string{"", "wrong"} {
			if a := send(word); a.status != http.StatusBadRequest {
				t.Errorf("%s with the password %q: %d", name, word, a.status)
			}
		}
		if a := send(password); a.status != http.StatusOK {
			t.Errorf("%s: %d\n%s", name, a.status, a.body)
		}
	}
}
