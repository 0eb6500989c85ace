package login_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// changed returns an address with other parameters or another path.
func changed(t *testing.T, address, path string, values url.Values) string {
	t.Helper()
	u := must[*url.URL](t)(url.Parse(address))
	q := u.Query()
	for name, v := range values {
		q[name] = v
	}
	if u.RawQuery = q.Encode(); path != "" {
		u.Path = path
	}
	return u.String()
}

// TestTwoProviders: if a browser uses two providers at the same time in two windows, no part of the response of one
// provider can be used in the sign-in with the other provider, and both sign-ins finish.
func TestTwoProviders(t *testing.T) {
	for name, tt := range map[string]struct{ lax, shared bool }{
		"that look at challenges":           {false, false},
		"that do not":                       {true, false},
		"that share an address":             {false, true},
		"that do not, and share an address": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := sqlite(t)
			one, two := newProvider(t), newProvider(t)
			one.lax, two.lax = tt.lax, tt.lax
			two.claims["sub"], two.info["sub"], two.claims["email"] = "quinn", "quinn", "quinn@example.test"
			share := func(i *resource.IdentityProvider) { i.SharedRedirect = tt.shared }
			first, second := x.keep(t, one, share), x.keep(t, two, share)
			path := func(idp resource.IdentityProvider) string { return "/oauth/callback/" + lastSegment(idp.UID) }
			for name, forge := range map[string]func(a, b string) string{
				"one's answer where the other's is expected": func(a, _ string) string { return changed(t, a, path(second), nil) },
				"one's code with the other's state": func(a, b string) string {
					return changed(t, b, "", url.Values{"code": {query(t, a).Get("code")}})
				},
				"the other's state with one's code, at one's address": func(a, b string) string {
					return changed(t, a, "", url.Values{"state": {query(t, b).Get("state")}})
				},
				"an answer that names the other issuer": func(a, _ string) string {
					return changed(t, a, "",
						url.Values{"iss": {two.URL}})
				},
				"a state of nobody": func(a, _ string) string {
					return changed(t, a, "",
						url.Values{"state": {"x"}})
				},
				"no state": func(a, _ string) string {
					return changed(t, a, "",
						url.Values{"state": nil})
				},
			} {
				b := x.browser(t)
				a1, a2 := one.answerTo(t, b.ask(first)), two.answerTo(t, b.ask(second))
				if a := b.get(forge(a1, a2)); a.status < http.StatusBadRequest || b.session() != "" {
					t.Errorf("%s: %d %s", name, a.status, a.location)
				}
			}
			for _, reverse := range []bool{false, true} { // both finish, in either order
				b := x.browser(t)
				type window struct{ answer, want string }
				windows := []window{
					{one.answerTo(t, b.ask(first)), "pat@example.test"},
					{two.answerTo(t, b.ask(second)), "quinn@example.test"},
				}
				if reverse {
					windows[0], windows[1] = windows[1], windows[0]
				}
				for _, w := range windows {
					a := b.get(w.answer)
					if c := x.caller(t, query(t, a.location).Get("token")); c.Email != w.want {
						t.Errorf("reverse %v: the token is of %s, want %s", reverse, c.Email, w.want)
					}
				}
			}
		})
	}
}

// TestTwoClientsOfAnIssuer: if two providers have the same issuer and different clients, a token for one client is not
// accepted for the other.
func TestTwoClientsOfAnIssuer(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	p.lax = true
	first := x.keep(t, p)
	second := x.keep(t, p, func(i *resource.IdentityProvider) { i.OIDC.ClientID = "another" })
	b := x.browser(t)
	a1, a2 := p.answerTo(t, b.ask(first)), p.answerTo(t, b.ask(second))
	if a := b.get(changed(t, a2, "",
		url.Values{"code": {query(t, a1).Get("code")}})); a.status < http.StatusBadRequest || b.session() != "" {
		t.Errorf("a code of one client in the sign-in of the other: %d %s", a.status, a.location)
	}
	p.claims["aud"] = "another"
	if a := b.get(p.answerTo(t, b.ask(first))); a.status < http.StatusBadRequest || b.session() != "" {
		t.Errorf("a token for the other client: %d %s", a.status, a.location)
	}
}

func shared(i *resource.IdentityProvider) { i.SharedRedirect = true }

// public removes the secret of our client at a provider.
func public(i *resource.IdentityProvider) { i.OIDC.ClientSecret = resource.Secret{} }

// TestMixUpAtTheSharedAddress: an attacker owns an organization and its provider. The attacker starts a sign-in with
// the victim's provider, and makes the victim start a sign-in with the attacker's provider. The attacker's provider
// redirects the victim's browser to the victim's provider, with the challenge and nonce of the attacker's sign-in and
// the state of the victim's sign-in. The code of the victim's provider then arrives as the response of the attacker's
// provider. The attacker uses the code in the sign-in with that challenge and nonce.
//
// The attack fails: nobody is signed in, and the code is not redeemed.
func TestMixUpAtTheSharedAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*resource.IdentityProvider)
		issNote bool // whether the victim's provider identifies itself in responses
		leaks   bool // whether the attacker's provider gets the code
	}{
		"a client with a secret":                       {func(*resource.IdentityProvider) {}, false, true},
		"a client with a secret, and a named issuer":   {func(*resource.IdentityProvider) {}, true, false},
		"a client without a secret":                    {public, false, false},
		"a client without a secret and a named issuer": {public, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := sqlite(t)
			honest, evil := newProvider(t), newProvider(t)
			honest.issNote = tt.issNote
			theirs, own := x.keep(t, honest, shared, tt.change), x.keep(t, evil, shared, func(i *resource.IdentityProvider) {
				org := resource.Group{UID: resource.NewRoot(), Name: "evil", CreateTime: x.clock.now(), UpdateTime: x.clock.now()}
				if _, err := x.store.InsertGroup(t.Context(), org); err != nil {
					t.Fatal(err)
				}
				i.UID = org.UID.NewChild()
			})
			attacker, victim := x.browser(t), x.browser(t)
			question, state := attacker.ask(theirs), query(t, victim.ask(own)).Get("state")
			mixed := honest.answerTo(t, changed(t, question, "", url.Values{"state": {state}}))
			if a := victim.get(mixed); a.status < http.StatusBadRequest || victim.session() != "" {
				t.Fatalf("the victim's browser: %d %s", a.status, a.location)
			}
			code := query(t, mixed).Get("code")
			if got := slices.Contains(evil.seen, code); got != tt.leaks {
				t.Errorf("the attacker's provider is sent the code: %v, want %v", got, tt.leaks)
			}
			if !tt.leaks {
				return
			}
			injected := changed(t, mixed, "", url.Values{"state": {query(t, question).Get("state")}})
			if a := attacker.get(injected); a.status < http.StatusBadRequest || attacker.session() != "" {
				t.Errorf("the attacker is signed in with the victim's code: %d %s", a.status, a.location)
			}
			if slices.Contains(honest.seen, code) {
				t.Error("the victim's code was redeemed")
			}
		})
	}
}

// TestRedirectAddresses: a provider uses the redirect URI of its client. Responses at another
// address are refused.
func TestRedirectAddresses(t *testing.T) {
	x := sqlite(t)
	p, named := newProvider(t), newProvider(t)
	named.issNote = true
	for name, tt := range map[string]struct {
		at     *provider
		change []func(*resource.IdentityProvider)
		shared bool
	}{
		"with its own address":             {p, nil, false},
		"a new one":                        {p, []func(*resource.IdentityProvider){shared}, true},
		"without a secret":                 {p, []func(*resource.IdentityProvider){shared, public}, false},
		"without a secret, and named":      {named, []func(*resource.IdentityProvider){shared, public}, true},
		"its own, without a secret, named": {named, []func(*resource.IdentityProvider){public}, false},
	} {
		idp := x.keep(t, tt.at, tt.change...)
		want, other := x.url+"/oauth/callback", "/oauth/callback/"+lastSegment(idp.UID)
		if !tt.shared {
			want, other = x.url+other, "/oauth/callback"
		}
		b := x.browser(t)
		question := b.ask(idp)
		if got := query(t, question).Get("redirect_uri"); got != want {
			t.Errorf("%s: it is asked to answer at %s, want %s", name, got, want)
		}
		if a := b.get(changed(t, tt.at.answerTo(t, question), other, nil)); a.status < http.StatusBadRequest ||
			b.session() != "" {
			t.Errorf("%s: an answer at the other address: %d", name, a.status)
		}
	}
}
