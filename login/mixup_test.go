package login_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/holdfast-dev/holdfast/resource"
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

// A browser uses two providers at the same time, in two windows. No part of
// the response of one can be used in the sign-in with the other, and each
// sign-in finishes.
func TestTwoProviders(t *testing.T) {
	for name, lax := range map[string]bool{"that look at challenges": false, "that do not": true} {
		t.Run(name, func(t *testing.T) {
			x := sqlite(t)
			one, two := newProvider(t), newProvider(t)
			one.lax, two.lax = lax, lax
			two.claims["sub"], two.info["sub"], two.claims["email"] = "quinn", "quinn", "quinn@example.test"
			first, second := x.keep(t, one), x.keep(t, two)
			path := func(idp resource.IdentityProvider) string { return "/oauth/callback/" + lastSegment(idp.UID) }
			for name, forge := range map[string]func(a, b string) string{
				"one's answer where the other's is expected": func(a, _ string) string { return changed(t, a, path(second), nil) },
				"one's code with the other's state": func(a, b string) string {
					return changed(t, b, "", url.Values{"code": {query(t, a).Get("code")}})
				},
				"the other's state with one's code, at one's address": func(a, b string) string {
					return changed(t, a, "", url.Values{"state": {query(t, b).Get("state")}})
				},
				"an answer that names the other issuer": func(a, _ string) string { return changed(t, a, "", url.Values{"iss": {two.URL}}) },
				"a state of nobody":                     func(a, _ string) string { return changed(t, a, "", url.Values{"state": {"x"}}) },
				"no state":                              func(a, _ string) string { return changed(t, a, "", url.Values{"state": nil}) },
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

// Two providers of one issuer with different clients are separate: a token for
// one client is not accepted for the other.
func TestTwoClientsOfAnIssuer(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	p.lax = true
	first := x.keep(t, p)
	second := x.keep(t, p, func(i *resource.IdentityProvider) { i.OIDC.ClientID = "another" })
	b := x.browser(t)
	a1, a2 := p.answerTo(t, b.ask(first)), p.answerTo(t, b.ask(second))
	if a := b.get(changed(t, a2, "", url.Values{"code": {query(t, a1).Get("code")}})); a.status < http.StatusBadRequest || b.session() != "" {
		t.Errorf("a code of one client in the sign-in of the other: %d %s", a.status, a.location)
	}
	p.claims["aud"] = "another"
	if a := b.get(p.answerTo(t, b.ask(first))); a.status < http.StatusBadRequest || b.session() != "" {
		t.Errorf("a token for the other client: %d %s", a.status, a.location)
	}
}
