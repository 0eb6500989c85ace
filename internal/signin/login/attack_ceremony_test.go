package login_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// race calls f n times at the same time, and returns how many calls returned true.
func race(n int, f func(i int) bool) (won int) {
	var group sync.WaitGroup
	results := make(chan bool, n)
	for i := range n {
		group.Go(func() { results <- f(i) })
	}
	group.Wait()
	close(results)
	for ok := range results {
		if ok {
			won++
		}
	}
	return won
}

// signsIn reports whether an answer delivers a token to a program.
func signsIn(a answer) bool { return strings.Contains(a.location+a.body, "token=") }

// TestAttackRacedFactors: if the same one-time password, or the same answer of a passkey, is sent many times at the
// same time, one of them signs in.
func TestAttackRacedFactors(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b, d := x.browser(t), x.authenticator(t)
		b.signIn()
		b.register(d)
		b.setUpApp()
		x.clock.move(time.Minute)
		a := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
		app := string(must[[]byte](t)(x.key.Open(secret.ForOneTimePasswords, a.TOTP)))
		code := must[string](t)(totp.GenerateCode(app, x.clock.now()))
		const n = 6
		browsers, flows := [n]*browser{}, [n]string{}
		for i := range n {
			browsers[i], flows[i] = x.halfway(t)
		}
		if won := race(n, func(i int) bool {
			return signsIn(browsers[i].post("/signin/totp", "flow", flows[i], "code", code))
		}); won != 1 {
			t.Errorf("a one-time password was accepted %d times", won)
		}

		c := x.browser(t)
		flow := c.start(forCommand(""))
		proof := d.sign(c.begin(flow))
		here := must[*url.URL](t)(url.Parse(x.url))
		for i := range n { // copies of the browser, each with the state of the ceremony
			browsers[i] = x.browser(t)
			browsers[i].Jar.SetCookies(here, c.Jar.Cookies(here))
		}
		if won := race(n, func(i int) bool { return signsIn(browsers[i].prove(flow, proof)) }); won != 1 {
			t.Errorf("an answer of a passkey was accepted %d times", won)
		}
	})
}

// TestAttackEarlierPassword: after a one-time password was used, the one before it is refused although its time has not
// passed. The next one signs in.
func TestAttackEarlierPassword(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		b := x.browser(t)
		b.signIn()
		b.setUpApp()
		a := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
		app := string(must[[]byte](t)(x.key.Open(secret.ForOneTimePasswords, a.TOTP)))
		x.clock.move(2 * time.Minute)
		at := func(d time.Duration) string { return must[string](t)(totp.GenerateCode(app, x.clock.now().Add(d))) }
		try := func(code string) bool {
			c, flow := x.halfway(t)
			return signsIn(c.post("/signin/totp", "flow", flow, "code", code))
		}
		if !try(at(0)) {
			t.Error("the current code is refused")
		}
		for name, d := range map[string]time.Duration{
			"the same code": 0, "the code before": -30 * time.Second, "an old code": -time.Minute, "a future code": time.Minute,
		} {
			if try(at(d)) {
				t.Errorf("%s signs in", name)
			}
		}
		x.clock.move(30 * time.Second)
		if !try(at(0)) {
			t.Error("the next code is refused")
		}
	})
}

// TestAttackDowngrade: a person with a second factor is not signed in without it, whichever page the browser requests
// after the password, and a passkey that does not verify its user does not replace the password.
func TestAttackDowngrade(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		b, d := x.browser(t), x.authenticator(t)
		b.signIn()
		b.register(d)
		codes := b.setUpApp()
		c, flow := x.halfway(t)
		for _, path := range []string{"/signin?flow=" + flow, "/account", "/console/", "/", "/signin/welcome?flow=" + flow} {
			if a := c.get(path); signsIn(a) || c.session() != "" {
				t.Errorf("GET %s after the password: %d %s", path, a.status, a.location)
			}
		}
		for path, fields := range map[string][]string{
			"/signin/confirm":  {"answer", "allow", "csrf", "x"},
			"/signin/totp":     {"code", ""},
			"/signin/recovery": {"recovery", ""},
			"/signin/password": {"email", ownerEmail, "password", password},
		} {
			if a := c.post(path, append(fields, "flow", flow)...); signsIn(a) || c.session() != "" {
				t.Errorf("POST %s after the password: %d %s", path, a.status, a.location)
			}
		}
		d.flags = 0x01 // the user is present, but not verified
		e, second := x.halfway(t)
		proof := d.sign(e.begin(second))
		first := x.browser(t)
		if a := first.prove(first.start(forCommand("")), proof); signsIn(a) || first.session() != "" {
			t.Errorf("an answer for the second factor is the only factor: %d %s", a.status, a.body)
		}
		flow = first.start(forCommand(""))
		if a := first.prove(flow, d.sign(first.begin(flow))); signsIn(a) || first.session() != "" {
			t.Errorf("a passkey that has not verified its user: %d %s", a.status, a.body)
		}
		if a := e.prove(second, proof); !signsIn(a) {
			t.Errorf("the passkey as the second factor: %d %s", a.status, a.body)
		}
		if !x.recovers(t, codes[0]) {
			t.Error("a recovery code is refused")
		}
	})
}

// TestAttackFramedPasskey: an answer that a browser made for a page inside a page of another origin is refused.
func TestAttackFramedPasskey(t *testing.T) {
	story(t, func(t *testing.T, x *site) {
		b, d := x.browser(t), x.authenticator(t)
		b.signIn()
		b.register(d)
		for _, framed := range []bool{true, false} {
			d.framed = framed
			c := x.browser(t)
			flow := c.start(forCommand(""))
			a := c.prove(flow, d.sign(c.begin(flow)))
			if signsIn(a) == framed || (a.status == http.StatusUnauthorized) != framed {
				t.Errorf("framed %t: %d %s", framed, a.status, a.body)
			}
		}
	})
}
