package login_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestAttackResponseParameters: a response of a provider is refused if a parameter occurs twice, if the issuer differs
// in any way, or if it arrives as a form. The code of one provider, and the token of one provider in the response of
// another, do not sign in. The same response signs in without the change.
func TestAttackResponseParameters(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		honest, other := newProvider(t), newProvider(t)
		honest.issNote = true
		good, second := x.keep(t, honest), x.keep(t, other)
		first := func(q url.Values, name string) string { return q.Get(name) }
		for name, change := range map[string]func(q, elsewhere url.Values){
			"nothing changed":      func(url.Values, url.Values) {},
			"two issuers":          func(q, _ url.Values) { q["iss"] = []string{first(q, "iss"), other.URL} },
			"the other one first":  func(q, _ url.Values) { q["iss"] = []string{other.URL, first(q, "iss")} },
			"a slash more":         func(q, _ url.Values) { q.Set("iss", first(q, "iss")+"/") },
			"another case":         func(q, _ url.Values) { q.Set("iss", strings.ToUpper(first(q, "iss"))) },
			"a space more":         func(q, _ url.Values) { q.Set("iss", first(q, "iss")+" ") },
			"an empty issuer":      func(q, _ url.Values) { q.Set("iss", "") },
			"two codes":            func(q, e url.Values) { q["code"] = []string{first(q, "code"), first(e, "code")} },
			"the code of another":  func(q, e url.Values) { q.Set("code", first(e, "code")) },
			"two states":           func(q, e url.Values) { q["state"] = []string{first(q, "state"), first(e, "state")} },
			"the state of another": func(q, e url.Values) { q.Set("state", first(e, "state")) },
			"a code and an error":  func(q, _ url.Values) { q.Set("error", "access_denied") },
			"no code but a token":  func(q, _ url.Values) { q.Del("code"); q.Set("id_token", "eyJhbGciOiJub25lIn0.e30.") },
		} {
			b := x.browser(t)
			answer := must[*url.URL](t)(url.Parse(honest.answerTo(t, b.ask(good))))
			elsewhere := must[*url.URL](t)(url.Parse(other.answerTo(t, b.ask(second))))
			q := answer.Query()
			change(q, elsewhere.Query())
			answer.RawQuery = q.Encode()
			a := b.get(answer.String())
			if in := b.session() != ""; in != (name == "nothing changed") {
				t.Errorf("%s: signed in %t, %d %s", name, in, a.status, a.location)
			}
		}
		b := x.browser(t)
		answer := must[*url.URL](t)(url.Parse(honest.answerTo(t, b.ask(good))))
		q := answer.Query()
		if a := b.post(answer.Path, "code", q.Get("code"), "state", q.Get("state"), "iss", q.Get("iss")); b.session() != "" ||
			a.status == http.StatusSeeOther {
			t.Errorf("a response as a form: %d %s", a.status, a.location)
		}
	})
}
