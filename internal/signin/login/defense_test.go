package login_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// Each test in this file is an attack from RFC 9700 or a related document. It fails without
// the defense.

func TestOpenRedirect(t *testing.T) {
	x := sqlite(t)
	for name, target := range map[string]string{
		"another host":            "http://evil.test/callback",
		"another host over https": "https://evil.test/",
		"https on this computer":  "https://127.0.0.1:7777/",
		"a user of this name":     "http://127.0.0.1@evil.test/",
		"a password":              "http://u:p@127.0.0.1/",
		"a name that begins so":   "http://localhost.evil.test/",
		"no scheme":               "//evil.test/",
		"a path":                  "/account",
		"a script":                "javascript:alert(1)",
		"data":                    "data:text/html,x",
		"a backslash":             `http://127.0.0.1\@evil.test/`,
		"a backslash in its path": `http://127.0.0.1:1/\evil.test`,
		"a fragment":              "http://127.0.0.1:1/#x",
		"a line break":            "http://127.0.0.1:1/\r\nSet-Cookie: x=y",
		"without end":             "http://127.0.0.1/" + strings.Repeat("x", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			a := x.browser(t).get("/oauth?exit=redirect&client_id=x&redirect=" + url.QueryEscape(target))
			if a.status != http.StatusBadRequest || a.location != "" {
				t.Errorf("%d, led to %q", a.status, a.location)
			}
		})
	}
}

// TestCallbackParameters: the response to a program replaces the parameters of the same name in the redirect address.
func TestCallbackParameters(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	a := b.password(b.start(forCommand("&create_refresh_token=true")), ownerEmail, password)
	q := query(t, a.location)
	if len(q["token"]) != 1 || q.Get("token") == "true" || len(q["refresh_token"]) != 1 || q["error"] != nil ||
		!strings.HasPrefix(a.location, "http://127.0.0.1:7777/callback?") {
		t.Fatalf("%d %s", a.status, a.location)
	}
	if c := x.caller(t, q.Get("token")); c.Identity != x.owner.Identity || c.Session == "" {
		t.Errorf("the token is of %+v", c)
	}
	access, _, err := x.sts.Refresh(t.Context(), q.Get("refresh_token"), sts.TokenParams{Audience: []string{x.url}})
	if err != nil || x.caller(t, access.Text).Identity != x.owner.Identity {
		t.Errorf("refreshed: %v", err)
	}
	b = x.browser(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	a = b.get("/oauth?exit=redirect&skip_registration=true&idp_id=" + url.QueryEscape(string(idp.UID)) + "&redirect=" +
		url.QueryEscape(callback))
	a = b.get(p.answerTo(t, a.location))
	if q = query(t, a.location); q["token"] != nil || q.Get("status_code") != "404" || q.Get("error") == "" ||
		len(q["error"]) != 1 {
		t.Errorf("somebody unknown: %d %s", a.status, a.location)
	}
}

func TestForeignForms(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	flow := b.start(forCommand(""))
	form := url.Values{"flow": {flow}, "email": {ownerEmail}, "password": {password}}
	for name, headers := range map[string][]string{
		"of another site":      {"Sec-Fetch-Site", "cross-site"},
		"of a sibling":         {"Sec-Fetch-Site", "same-site"},
		"of an old browser's":  {"Origin", "https://evil.test"},
		"of a page of nowhere": {"Origin", "null"},
	} {
		if a := b.do(http.MethodPost, "/signin/password", form, headers...); a.status != http.StatusForbidden ||
			a.location != "" {
			t.Errorf("a form %s: %d %s", name, a.status, a.location)
		}
	}
	if a := x.browser(t).password(flow, ownerEmail, password); a.status != http.StatusBadRequest {
		t.Errorf("a form of another browser: %d", a.status)
	}
	b = x.browser(t)
	b.signIn()
	for _, path := range []string{"/account/password", "/account/totp/start", "/account/totp", "/account/totp/remove",
		"/account/recovery", "/account/passkeys/remove", "/account/sessions/end", "/signout"} {
		for _, csrf := range []string{"", "x", x.browserCSRF(t)} {
			if a := b.post(path, "csrf", csrf, "current", password, "password",
				"another violet anchor"); a.status != http.StatusForbidden {
				t.Errorf("%s with the token %q: %d", path, csrf, a.status)
			}
		}
	}
}

// browserCSRF returns a CSRF token from a form of another browser.
func (x *site) browserCSRF(t *testing.T) string {
	b := x.browser(t)
	b.signIn()
	return b.csrf()
}

func TestSessionFixation(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	here := must[*url.URL](t)(url.Parse(x.url))
	attackers := strings.Repeat("A", 52)
	b.Jar.SetCookies(here, []*http.Cookie{{Name: "hf_session", Value: attackers, Path: "/"}})
	b.signIn()
	first := b.session()
	if first == attackers || first == "" {
		t.Fatal("the session that the browser came with goes on")
	}
	b.post("/signin/other", "flow", b.start(forCommand("")))
	b.Jar.SetCookies(here, []*http.Cookie{{Name: "hf_session", Value: first, Path: "/"}})
	if a := b.get("/account"); a.location != "/signin" {
		t.Errorf("a session that was left is still good: %d", a.status)
	}
	b.signIn()
	old := b.session()
	b.password(b.start(forCommand("&identity="+string(x.owner.Identity))), ownerEmail, password)
	if b.session() == old {
		t.Error("signing in again goes on under the same session")
	}
	b.Jar.SetCookies(here, []*http.Cookie{{Name: "hf_session", Value: old, Path: "/"}})
	if a := b.get("/account"); a.location != "/signin" {
		t.Errorf("the session before is still good: %d", a.status)
	}
}

func (b *browser) session() string {
	here := must[*url.URL](b.t)(url.Parse(b.x.url))
	for _, c := range b.Jar.Cookies(here) {
		if c.Name == "hf_session" {
			return c.Value
		}
	}
	return ""
}

// ask sends a browser to a provider and returns the authorization request.
func (b *browser) ask(idp resource.IdentityProvider) string {
	b.t.Helper()
	a := b.get(
		"/oauth?exit=redirect&idp_id=" + url.QueryEscape(string(idp.UID)) + "&redirect=" + url.QueryEscape(callback),
	)
	if !strings.HasPrefix(a.location, idp.OIDC.Issuer) {
		b.t.Fatalf("led to %d %s\n%s", a.status, a.location, a.body)
	}
	return a.location
}

// TestLoginCSRF: following a response that belongs to another person's sign-in does not sign in as that person.
func TestLoginCSRF(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	attacker, victim := x.browser(t), x.browser(t)
	answer := p.answerTo(t, attacker.ask(idp))
	victim.ask(idp)
	if a := victim.get(answer); a.status != http.StatusBadRequest || victim.session() != "" {
		t.Errorf("the victim is let in with the attacker's answer: %d %s", a.status, a.location)
	}
	// The id of the victim's own sign-in is no secret. A response with this id does not help the attacker either.
	_, flow, _ := strings.Cut(victim.get("/signin").location, "flow=")
	victim.get("/signin/provider?flow=" + flow + "&provider=" + url.QueryEscape(string(idp.UID)))
	forged := must[*url.URL](t)(url.Parse(answer))
	q := forged.Query()
	q.Set("state", flow+q.Get("state")[26:])
	forged.RawQuery = q.Encode()
	if a := victim.get(forged.String()); a.status != http.StatusBadRequest || victim.session() != "" {
		t.Errorf("an answer with a state that was made up: %d %s", a.status, a.location)
	}
	if a := attacker.get(answer); query(t, a.location).Get("token") == "" {
		t.Errorf("the attacker's own answer: %d %s\n%s", a.status, a.location, a.body)
	}
}

// TestCodeInjection: a code that was stolen from one sign-in cannot be used in another sign-in, whether or not the
// provider checks PKCE.
func TestCodeInjection(t *testing.T) {
	for _, lax := range []bool{false, true} {
		t.Run(fmt.Sprintf("lax %v", lax), func(t *testing.T) {
			x := sqlite(t)
			p := newProvider(t)
			p.lax = lax
			idp := x.keep(t, p)
			victim, attacker := x.browser(t), x.browser(t)
			stolen := query(t, p.answerTo(t, victim.ask(idp))).Get("code")
			own := must[*url.URL](t)(url.Parse(p.answerTo(t, attacker.ask(idp))))
			q := own.Query()
			q.Set("code", stolen)
			own.RawQuery = q.Encode()
			if a := attacker.get(own.String()); a.status != http.StatusBadGateway || attacker.session() != "" {
				t.Errorf("the attacker is let in with the victim's code: %d %s", a.status, a.location)
			}
		})
	}
}

// TestTokenInjection: an ID token that does not match the access token is refused.
func TestTokenInjection(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	for hash, want := range map[string]bool{strings.Repeat("A", 22): false,
		b64(must[[]byte](t)(hex.DecodeString(upstreamHash))): true} {
		p.claims["at_hash"] = hash
		b := x.browser(t)
		if a := b.through(p, idp); (b.session() != "") != want {
			t.Errorf("at_hash %s: %d %s\n%s", hash, a.status, a.location, a.body)
		}
	}
}

// upstreamHash is the left half of the SHA-256 of the access token that the test provider
// issues.
var upstreamHash = fmt.Sprintf("%x", sha256.Sum256([]byte("upstream-token")))[:32]

// TestMixUp: the response of one provider is not accepted as the response of another provider.
func TestMixUp(t *testing.T) {
	x := sqlite(t)
	honest, evil := newProvider(t), newProvider(t)
	honest.issNote = true
	good, bad := x.keep(t, honest), x.keep(t, evil)
	b := x.browser(t)
	question := b.ask(bad)
	// The evil provider redirects the browser to the honest provider, whose response arrives at
	// the redirect URI of the honest provider.
	q := query(t, question)
	forwarded := honest.URL + "/authorize?" + url.Values{
		"state": {q.Get("state")}, "nonce": {q.Get("nonce")}, "code_challenge": {q.Get("code_challenge")},
		"redirect_uri": {x.url + "/oauth/callback/" + lastSegment(good.UID)},
	}.Encode()
	if a := b.get(honest.answerTo(t, forwarded)); a.status != http.StatusBadRequest || b.session() != "" {
		t.Errorf("the honest provider's answer is taken for the evil one's: %d", a.status)
	}
	for name, iss := range map[string]string{"another issuer": evil.URL, "no issuer": ""} {
		b := x.browser(t)
		u := must[*url.URL](t)(url.Parse(honest.answerTo(t, b.ask(good))))
		q := u.Query()
		if q.Set("iss", iss); iss == "" {
			q.Del("iss")
		}
		u.RawQuery = q.Encode()
		if a := b.get(u.String()); a.status != http.StatusBadGateway || b.session() != "" {
			t.Errorf("an answer with %s: %d", name, a.status)
		}
	}
	if len(evil.codesSeen()) > 0 {
		t.Error("the evil provider was shown a code")
	}
}

func (p *provider) codesSeen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func lastSegment(uid resource.UID) string {
	return string(uid)[strings.LastIndexByte(string(uid), '/')+1:]
}

// TestReplay: if a code or response is valid once, its second use is refused, also by another replica.
func TestReplay(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		p.lax = true
		idp := x.keep(t, p)
		b := x.browser(t)
		here := must[*url.URL](t)(url.Parse(x.url))
		// A sign-in of the browser itself delivers no token.
		asked := b.get("/oauth?idp_id=" + url.QueryEscape(string(idp.UID)))
		answer := p.answerTo(t, asked.location)
		cookies := b.Jar.Cookies(here)
		if a := b.get(answer); a.location != "/account" {
			t.Fatalf("%d %s", a.status, a.location)
		}
		b.Jar.SetCookies(here, cookies) // restores the cookie of the flow
		if a := b.get(answer); a.status != http.StatusForbidden || a.location != "" {
			t.Errorf("an answer of a provider, again: %d %s", a.status, a.location)
		}
		b = x.browser(t)
		flow := b.start(forCommand(""))
		cookies = b.Jar.Cookies(here)
		b.password(flow, ownerEmail, password)
		b.Jar.SetCookies(here, cookies)
		if a := b.password(flow, ownerEmail, password); a.status != http.StatusForbidden || a.location != "" {
			t.Errorf("a sign-in, finished again: %d %s", a.status, a.location)
		}
	})
}

const verifier = "a-verifier-that-nobody-else-has-0123456789-abcdef"

func s256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func fieldOf(t *testing.T, body, name string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	text, _ := v[name].(string)
	return text
}

var flowField = regexp.MustCompile(`[A-Z2-7]{26}`)

// invite creates an invite into the organization and returns its code.
func (x *site) invite(t *testing.T, i resource.GroupInvite) (resource.GroupInvite, string) {
	t.Helper()
	i.UID, i.Role, i.KeyID = x.org.UID.NewChild(), resource.ManagedRoleUID("viewer"), "k"
	i.CreateTime, i.ExpirationTime = x.clock.now(), x.clock.now().Add(time.Hour)
	secret := []byte("0123456789abcdef0123456789abcdef" + string(i.UID))[:48]
	sum := sha256.Sum256(secret)
	i.Digest = sum[:]
	made := must[resource.GroupInvite](t)(x.store.InsertInvite(t.Context(), i))
	b := must[[]byte](t)(json.Marshal(map[string]any{"invite": i.UID, "keyId": "k", "secret": secret}))
	return made, base64.RawURLEncoding.EncodeToString(b)
}

// tampered returns a code with another secret.
func tampered(code string) string {
	b, _ := base64.RawURLEncoding.DecodeString(code)
	var v map[string]any
	_ = json.Unmarshal(b, &v)
	v["secret"] = []byte("another secret")
	b, _ = json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(b)
}

func (x *site) redeem(t *testing.T, fields ...string) (status int, body string) {
	t.Helper()
	a := x.browser(t).post("/oauth/token", fields...)
	return a.status, a.body
}

// TestReplayOfCode: the second use of an authorization code ends the session that the first use started.
func TestReplayOfCode(t *testing.T) {
	x := sqlite(t)
	handed := func() string {
		b := x.browser(t)
		a := b.password(
			b.start(forCommand("&state=s1&code_challenge_method=S256&code_challenge="+s256(verifier))), ownerEmail,
			password,
		)
		q := query(t, a.location)
		if q.Get("code") == "" || q.Get("token") != "" || q.Get("state") != "s1" {
			t.Fatalf("%d %s", a.status, a.location)
		}
		return q.Get("code")
	}
	right := []string{
		"grant_type", "authorization_code", "redirect_uri", callback, "client_id", "test", "code_verifier", verifier,
	}
	code := handed()
	status, body := x.redeem(t, append(right, "code", code)...)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	raw := fieldOf(t, body, "access_token")
	c := x.caller(t, raw)
	if why := x.checker.Revoked(c); why != "" {
		t.Fatal(why)
	}
	if status, body := x.redeem(t, append(right, "code", code)...); status != http.StatusBadRequest ||
		!strings.Contains(body, "invalid_grant") {
		t.Errorf("again: %d %s", status, body)
	}
	if x.checker.Revoked(c) == "" {
		t.Error("the token that the code gave is still good")
	}
	for i, name := range map[int]string{3: "another address", 5: "another client", 7: "another verifier"} {
		wrong := append([]string{}, right...)
		wrong[i] = "wrong"
		if status, body := x.redeem(t, append(wrong, "code", handed())...); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for _, n := range must[[]resource.Session](t)(x.store.Sessions(t.Context(), x.owner.Identity)) {
		if !n.Browser {
			t.Errorf("a session goes on that nobody has the tokens of: %+v", n)
		}
	}
	late := handed()
	x.clock.move(2 * time.Minute)
	if status, _ := x.redeem(t, append(right, "code", late)...); status != http.StatusBadRequest {
		t.Errorf("too late: %d", status)
	}
}

func TestClickjacking(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	flow := b.start(forCommand(""))
	pages := map[string]answer{
		"the sign-in": b.get("/signin?flow=" + flow), "a problem": b.get("/signin?flow=x"),
		"the device page":      b.get("/device"),
		"the answer to a form": b.password(flow, ownerEmail, "wrong"), "the callback": b.get("/oauth/callback/x"),
		"a link": b.get("/link"),
	}
	b.signIn()
	pages["the account"] = b.get("/account")
	pages["the question"] = b.get("/signin?flow=" + b.start(forCommand("")))
	for name, a := range pages {
		policy := a.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "frame-ancestors 'none'") || a.header.Get("X-Frame-Options") != "DENY" ||
			!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
			a.header.Get("Referrer-Policy") != "no-referrer" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", name, a.header)
		}
		if strings.Contains(a.body, "<style") || strings.Contains(a.body, " style=") ||
			strings.Contains(a.body, "onclick") {
			t.Errorf("%s has style or script in it", name)
		}
	}
}

// TestEnumerationByText: the page is the same for an unknown address and for a wrong password.
// password_internal_test.go checks that the response also takes the same time.
func TestEnumerationByText(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	known := b.password(b.start(forCommand("")), ownerEmail, "wrong password")
	unknown := b.password(b.start(forCommand("")), "nobody@example.test", "wrong password")
	without := must[resource.Account](t)(x.addAccount(t, "new@example.test"))
	none := b.password(b.start(forCommand("")), without.Email, "wrong password")
	strip := func(a answer, email string) string {
		text := strings.ReplaceAll(a.body, email, "E")
		return flowField.ReplaceAllString(text, "F")
	}
	want := strip(known, ownerEmail)
	if known.status != http.StatusUnauthorized || unknown.status != known.status || none.status != known.status ||
		strip(unknown, "nobody@example.test") != want || strip(none, without.Email) != want {
		t.Errorf(
			"known: %d, unknown: %d, without a password: %d\n%s\n%s", known.status, unknown.status, none.status,
			known.body, unknown.body,
		)
	}
}

func (x *site) addAccount(t *testing.T, email string) (resource.Account, error) {
	t.Helper()
	a, _, err := x.AddAccount(t.Context(), x.org.UID, resource.Account{Email: email}, "")
	return a, err
}

func TestBruteForce(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	flow := b.start(forCommand(""))
	for i := range 10 {
		if a := b.password(flow, ownerEmail, fmt.Sprint("guess number ", i)); a.status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", i, a.status)
		}
	}
	for name, word := range map[string]string{"wrong": "guess number 11", "right": password} {
		a := b.password(flow, ownerEmail, word)
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("one more that is %s: %d", name, a.status)
		}
	}
	if a := b.password(flow, "nobody@example.test", "x"); a.status != http.StatusUnauthorized {
		t.Errorf("another account: %d", a.status)
	}
	x.clock.move(15 * time.Minute)
	b = x.browser(t)
	if a := b.password(b.start(forCommand("")), ownerEmail, password); a.location == "" {
		t.Errorf("after a while: %d", a.status)
	}
}

// TestRacedHandOff: if a code that is valid once is used twice at the same time, exactly one use succeeds.
func TestRacedHandOff(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b := x.browser(t)
		b.signIn()
		flow := b.start(forCommand(""))
		var group sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for range 8 {
			group.Go(func() {
				if a := b.allow(flow); strings.Contains(a.location, "token=") {
					mu.Lock()
					got++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if got != 1 {
			t.Errorf("%d got a token", got)
		}
	})
}

// TestNothingWithoutAsking: a browser that is signed in delivers no token without consent.
func TestNothingWithoutAsking(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	flow := b.start(forCommand(""))
	if a := b.get("/signin?flow=" + flow); a.location != "" || !strings.Contains(a.body, `name="answer"`) {
		t.Fatalf("%d %s\n%s", a.status, a.location, a.body)
	}
	a := b.post("/signin/confirm", "flow", flow, "answer", "deny")
	if q := query(t, a.location); q.Get("status_code") != "403" || q.Get("token") != "" {
		t.Errorf("denied: %s", a.location)
	}
}

// TestSecretsStayOut: no secret is logged or appears in an address.
func TestSecretsStayOut(t *testing.T) {
	x := sqlite(t)
	p := newProvider(t)
	idp := x.keep(t, p)
	b := x.browser(t)
	a := b.password(b.start(forCommand("&create_refresh_token=true")), ownerEmail, password)
	b.password(b.start(forCommand("&identity="+string(x.owner.Identity))), ownerEmail, "wrong but secret")
	c := x.browser(t)
	answer := p.answerTo(t, c.ask(idp))
	c.get(answer)
	account := must[resource.Account](t)(x.addAccount(t, "new@example.test"))
	_ = account
	p.Close()
	d := x.browser(t)
	d.get("/oauth?idp_id=" + url.QueryEscape(string(idp.UID)) + "&client_id=")
	logs := x.logs.String()
	for name, secret := range map[string]string{
		"a password": password, "a wrong password": "wrong but secret", "a token": query(t, a.location).Get("token"),
		"a refresh token": query(t, a.location).Get("refresh_token"), "a client secret": "hush-hush",
		"a code":    query(t, answer).Get("code"),
		"a session": b.session(),
	} {
		if secret == "" || strings.Contains(logs, secret) {
			t.Errorf("%s is in the log: %q", name, secret)
		}
	}
}

// TestInvites: a person who has the code of an invite learns why the invite cannot be used, and nobody else does.
func TestInvites(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		x.keep(t, p)
		bearer := func(email string, verified bool) string {
			return p.sign(map[string]any{
				"iss": p.URL, "sub": "sub of " + email, "aud": "client", "iat": time.Now().Unix(),
				"exp":   time.Now().Add(time.Hour).Unix(),
				"email": email, "email_verified": verified,
			})
		}
		reason := func(t *testing.T, code, bearer string) string {
			t.Helper()
			_, err := x.Register(t.Context(), bearer, code, "")
			if err == nil {
				return ""
			}
			f := fault.From(err)
			if len(f.Unmet) == 0 {
				t.Fatalf("error = %v", err)
			}
			return f.Unmet[0].Subject
		}
		once, code := x.invite(t, resource.GroupInvite{SingleUse: true})
		if why := reason(t, tampered(code), bearer("ann@example.test", true)); why != "INVITE_UNKNOWN" {
			t.Errorf("with another secret: %q", why)
		}
		if why := reason(t, code, bearer("ann@example.test", true)); why != "" {
			t.Fatal(why)
		}
		if why := reason(t, code, bearer("bob@example.test", true)); why != "INVITE_USED" {
			t.Errorf("used: %q", why)
		}
		if why := reason(t, tampered(code), bearer("bob@example.test", true)); why != "INVITE_UNKNOWN" {
			t.Errorf("used, with another secret: %q", why)
		}
		revoked, code := x.invite(t, resource.GroupInvite{})
		if err := x.store.DeleteInvite(t.Context(), revoked.UID); err != nil {
			t.Fatal(err)
		}
		if why := reason(t, code, bearer("bob@example.test", true)); why != "INVITE_REVOKED" {
			t.Errorf("revoked: %q", why)
		}
		_, addressed := x.invite(t, resource.GroupInvite{Email: "carl@example.test"})
		for name, tt := range map[string]struct {
			email    string
			verified bool
			want     string
		}{
			"another address":        {"bob@example.test", true, "INVITE_WRONG_EMAIL"},
			"one nobody has checked": {"carl@example.test", false, "INVITE_UNVERIFIED_EMAIL"},
			"the right one":          {"Carl@example.test", true, ""},
		} {
			if why := reason(t, addressed, bearer(tt.email, tt.verified)); why != tt.want {
				t.Errorf("%s: %q, want %q", name, why, tt.want)
			}
		}
		_, expired := x.invite(t, resource.GroupInvite{})
		x.clock.move(2 * time.Hour)
		if why := reason(t, expired, bearer("bob@example.test", true)); why != "INVITE_EXPIRED" {
			t.Errorf("expired: %q", why)
		}
		joined := must[[]resource.Join](t)(x.store.Joins(t.Context(), x.org.UID))
		// All of them joined at the same time, so the list has no fixed order.
		slices.SortFunc(joined, func(a, b resource.Join) int { return strings.Compare(a.Name, b.Name) })
		if len(joined) != 2 || joined[0].Invite != once.UID || joined[0].Email != "ann@example.test" {
			t.Errorf("joined: %+v", joined)
		}
	})
}

// TestInviteOfStrangeIssuer: an issuer that the operator does not trust cannot verify e-mail addresses for an
// organization.
func TestInviteOfStrangeIssuer(t *testing.T) {
	x := sqlite(t)
	stranger := newProvider(t)
	_, code := x.invite(t, resource.GroupInvite{Email: "carl@example.test"})
	raw := stranger.sign(map[string]any{
		"iss": stranger.URL, "sub": "x", "aud": x.url, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"email": "carl@example.test", "email_verified": true,
	})
	_, err := x.Register(t.Context(), raw, code, "")
	if !errors.Is(err, fault.FailedPrecondition) {
		t.Errorf("error = %v", err)
	}
}

// TestCookies: cookies cannot be read by scripts, are not sent with forms of other sites, and over https cannot be set
// by other hosts or intercepted.
func TestCookies(t *testing.T) {
	x := sqlite(t)
	cfg := login.Config{Issuer: "https://holdfast.test", BaseURL: x.url, Key: x.key, Now: x.clock.now}
	admin := newAdmin(x.store.DB, x.checker, x.key, x.clock, cfg)
	secure := must[*login.Service](t)(login.New(x.store.DB, x.checker, x.sts, admin, cfg)).Handler()
	for name, tt := range map[string]struct {
		handler http.Handler
		prefix  string
		secure  bool
	}{"http": {x.Handler(), "", false}, "https": {secure, "__Host-", true}} {
		t.Run(name, func(t *testing.T) {
			var jar []*http.Cookie
			seen := map[string]bool{}
			do := func(method, target string, form url.Values) *http.Response {
				r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				for _, c := range jar {
					r.AddCookie(c)
				}
				w := httptest.NewRecorder()
				tt.handler.ServeHTTP(w, r)
				for _, c := range w.Result().Cookies() {
					jar = append(jar, c)
					kind, ours := strings.CutPrefix(c.Name, tt.prefix+"hf_")
					seen[strings.Split(kind, "_")[0]] = true
					if !ours || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != tt.secure ||
						c.Path != "/" || c.Domain != "" {
						t.Errorf("%s %s sets %s", method, target, c)
					}
				}
				return w.Result()
			}
			do(http.MethodGet, "/link?code=x", nil)
			_, flow, _ := strings.Cut(do(http.MethodGet, "/signin", nil).Header.Get("Location"), "flow=")
			do(
				http.MethodPost, "/signin/password",
				url.Values{"flow": {flow}, "email": {ownerEmail}, "password": {password}},
			)
			body := must[[]byte](t)(io.ReadAll(do(http.MethodGet, "/account", nil).Body))
			token := csrfField.FindStringSubmatch(string(body))
			if token == nil {
				t.Fatalf("not signed in:\n%s", body)
			}
			do(http.MethodPost, "/account/totp/start", url.Values{"csrf": {token[1]}, "current": {password}})
			for _, kind := range []string{"link", "flow", "session", "totp"} {
				if !seen[kind] {
					t.Errorf("no cookie of a %s", kind)
				}
			}
		})
	}
}

// TestBruteForceInside: after the sign-in, guesses of the password that every change requires and guesses of the
// code of a new authenticator app are limited, too.
func TestBruteForceInside(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	for name, tt := range map[string]struct {
		path, field string
		right       func(*browser, string) string
	}{
		"the password of before": {"/account/password", "current", func(*browser, string) string { return password }},
		"codes of an app": {"/account/totp", "code", func(b *browser, secret string) string {
			return must[string](b.t)(totp.GenerateCode(secret, b.x.clock.now()))
		}},
		"the password, for an app": {"/account/totp/remove", "current", func(*browser, string) string { return password }},
	} {
		t.Run(name, func(t *testing.T) {
			x.clock.move(15 * time.Minute) // resets the limits
			csrf := b.csrf()
			secret := strings.ReplaceAll(
				secretText.FindString(b.post("/account/totp/start", "csrf", csrf, "current", password).body), " ", "",
			)
			try := func(word string) int {
				return b.post(tt.path, "csrf", csrf, tt.field, word, "password", "another violet anchor").status
			}
			for i := range 10 {
				if got := try(fmt.Sprintf("%06d", i)); got != http.StatusBadRequest {
					t.Fatalf("guess %d: %d", i, got)
				}
			}
			if got := try(tt.right(b, secret)); got != http.StatusTooManyRequests {
				t.Errorf("the right one after guessing: %d", got)
			}
		})
	}
}

// TestManyDevices: only a limited number of devices in one network can wait for a decision.
func TestManyDevices(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	for i := range 61 {
		a := b.post("/oauth/device_authorization", "client_id", "tv")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 60]; a.status != want {
			t.Fatalf("device %d: %d, want %d", i, a.status, want)
		}
	}
}
