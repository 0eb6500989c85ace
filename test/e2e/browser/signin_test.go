package browser_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// signIn fills in the sign-in form for local accounts.
func (b *tab) signIn(email, password string) {
	b.t.Helper()
	b.see("Sign in")
	b.fill("E-mail", email)
	b.fill("Password", password)
	b.press("Sign in")
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login()
	b.open(l.address())
	b.see("Sign in")
	b.read("Holdfast keeps who may do what in an organization")
	b.read(strings.TrimPrefix(s.BaseURL, "http://"))
	b.inspect("signin")
	b.press("Forgot your password?")
	b.read("Ask an administrator of your organization")
	b.inspect("signin-forgot")
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("You are signed in")
	b.run("see the logo", chromedp.WaitVisible("header svg", chromedp.ByQuery))
	b.inspect("command")
	l.succeeds()
	p.works()
	b.leavesNothing(t, s)
}

// leavesNothing fails the test if the browser's history or the server's log contains a secret of the sign-in.
func (b *tab) leavesNothing(t *testing.T, s *site) {
	t.Helper()
	b.run("read the history", chromedp.ActionFunc(func(ctx context.Context) error {
		_, entries, err := page.GetNavigationHistory().Do(ctx)
		for _, e := range entries {
			u, _ := url.Parse(e.URL)
			for _, name := range []string{"token", "refresh_token", "code", "id_token"} {
				if u.Query().Has(name) {
					t.Errorf("the history contains a %s: %s", name, e.URL)
				}
			}
		}
		return err
	}))
	log := s.log.String()
	if strings.Contains(log, s.OwnerPassword) {
		t.Error("the log contains the password")
	}
	if token := regexp.MustCompile(`eyJ[\w-]+\.eyJ`).FindString(log); token != "" {
		t.Errorf("the log contains a token: %s…", token)
	}
}

// TestShowPassword checks that a person can show the typed password. The page must hide the password again before it
// is sent, because browsers only save the content of password fields.
func TestShowPassword(t *testing.T) {
	t.Parallel()
	s, b := newSite(t), newTab(t)
	b.open(s.BaseURL + "/signin")
	b.see("Sign in")
	b.fill("Password", "almost right")
	for _, step := range []struct{ button, kind string }{
		{"Show password", "text"}, {"Hide password", "password"}, {"Show password", "text"},
	} {
		b.press(step.button)
		if got := b.attribute("#password", "type"); got != step.kind {
			t.Errorf("after %q the field is a %s, want %s", step.button, got, step.kind)
		}
	}
	b.run("listen", chromedp.Evaluate(`document.querySelector("#password").form.addEventListener("submit", e => {
		e.preventDefault(); document.title = e.target.elements.password.type })`, nil))
	b.fill("E-mail", s.OwnerEmail)
	b.press("Sign in")
	if got := b.title(); got != "password" {
		t.Errorf("when the form is sent, the field is a %s", got)
	}
	c := newTab(t)
	c.withoutScripts()
	c.open(s.BaseURL + "/signin")
	c.see("Sign in")
	if c.visible(".show") {
		t.Error("without scripts there is a button that does nothing")
	}
}

// attribute returns a property of the element that the selector finds.
func (b *tab) attribute(selector, name string) (value string) {
	b.t.Helper()
	b.run("read "+selector, chromedp.JavascriptAttribute(selector, name, &value, chromedp.ByQuery))
	return value
}

func (b *tab) title() (text string) {
	b.t.Helper()
	b.run("read the title", chromedp.Title(&text))
	return text
}

// visible reports whether an element is displayed on the page.
func (b *tab) visible(selector string) (is bool) {
	b.t.Helper()
	b.run("look for "+selector,
		chromedp.Evaluate(fmt.Sprintf(`!!document.querySelector(%q)?.getClientRects().length`, selector), &is))
	return is
}

// inView reports whether an element is visible without scrolling.
func (b *tab) inView(selector string) (is bool) {
	b.t.Helper()
	b.run("look for "+selector,
		chromedp.Evaluate(fmt.Sprintf(`(r => r.top >= 0 && r.bottom <= innerHeight && r.height > 0)(`+
			`document.querySelector(%q).getBoundingClientRect())`, selector), &is))
	return is
}

func TestSignInWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.withoutScripts()
	l := p.login()
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("You are signed in")
	l.succeeds()
	p.works()
}

func TestSignInByKeyboard(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login()
	b.open(l.address())
	b.see("Sign in")
	b.tabTo("E-mail")
	b.keys(s.OwnerEmail)
	b.tabTo("Password")
	b.keys(s.OwnerPassword + kb.Enter)
	b.see("You are signed in")
	l.succeeds()
	p.works()
}

// tabTo presses the tab key until the element with this name has the focus.
func (b *tab) tabTo(name string) {
	b.t.Helper()
	var passed []string
	for !slices.Contains(passed, name) {
		if len(passed) > 20 {
			b.t.Fatalf("the tab key does not reach %q, but %q", name, passed)
		}
		b.keys(kb.Tab)
		passed = append(passed, b.focused())
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login()
	b.run("on a phone", chromedp.EmulateViewport(390, 700))
	b.open(l.address())
	b.signIn(s.OwnerEmail, "not the password at all")
	// The error is next to the field in which the person has typed.
	beside := `form[action="/signin/password"] #password-wrong[role=alert]`
	b.run("see the problem", chromedp.WaitVisible(beside, chromedp.ByQuery))
	if got := b.focused(); got != "Password" {
		t.Errorf("the focus is on %q, want Password", got)
	}
	if got := b.attribute("#email", "value"); got != s.OwnerEmail {
		t.Errorf("the e-mail address is %q, want the typed one", got)
	}
	if !b.inView(beside) {
		t.Error("the reason is not visible on a phone without scrolling")
	}
	b.inspect("signin-wrong")
	b.signIn(s.OwnerEmail, s.OwnerPassword) // the same sign-in continues
	b.see("You are signed in")
	l.succeeds()
}

func TestHeadless(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login("--headless")
	b.open(l.address())
	code := l.says(`shows the code (\S+)$`)
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("Do the codes match?")
	b.read(code)
	b.inspect("confirm")
	b.press("Allow")
	b.see("You are signed in")
	b.inspect("done")
	l.succeeds()
	p.works()
}

func TestHeadlessDenied(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login("--headless")
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("Do the codes match?")
	b.press("Deny")
	b.see("You said no")
	b.inspect("denied")
	l.fails()
}

// TestCommandDenied: if the person denies the request of the command-line program, then the page says so and the
// command fails.
func TestCommandDenied(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.account(s, s.OwnerEmail, s.OwnerPassword)
	l := p.login()
	b.open(l.address())
	b.see("Continue as")
	b.press("Deny")
	b.see("You are not signed in")
	b.run("see the logo", chromedp.WaitVisible("header svg", chromedp.ByQuery))
	b.inspect("command-refused")
	l.fails()
}

// forgetFresh makes the sign-in of the browser look older than ten minutes.
func (b *tab) forgetFresh(s *site) {
	b.t.Helper()
	b.run("ten minutes later", network.DeleteCookies("hf_fresh").WithURL(s.BaseURL))
}

// TestSignInAgain: a browser in which the person has signed in a while ago asks once for the password before a program
// gets a token, and then continues where the person was.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.account(s, s.OwnerEmail, s.OwnerPassword)
	b.forgetFresh(s)
	l := p.login()
	b.open(l.address())
	b.read("You signed in a while ago")
	b.inspect("signin-again")
	b.fill("Password", s.OwnerPassword) // the page knows the e-mail address
	b.press("Sign in")
	b.see("You are signed in")
	l.succeeds()
	b.again(p.login())
	b.forgetFresh(s)
	l = p.login("--device")
	words := strings.Fields(l.says(`(open \S+ in a browser and enter the code \S+)`))
	b.open(words[1])
	b.fill("Code", words[len(words)-1])
	b.press("Continue")
	b.read("You signed in a while ago")
	b.read("a device asks to act as you")
	b.fill("Password", s.OwnerPassword)
	b.press("Sign in")
	b.see("Do the codes match?")
	b.forgetFresh(s) // the person waits too long before the last click
	b.press("Allow")
	b.read("You signed in a while ago")
	b.fill("Password", s.OwnerPassword)
	b.press("Sign in")
	b.see("Do the codes match?")
	b.press("Allow")
	b.see("You are signed in")
	l.succeeds()
	p.works()
}

func TestDevice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	l := p.login("--device")
	line := l.says(`(open \S+ in a browser and enter the code \S+)`)
	words := strings.Fields(line)
	address, code := words[1], words[len(words)-1]
	b.open(address)
	b.see("Connect a device")
	b.inspect("device")
	for typed, why := range map[string]string{
		"one-two-3": "This is not a whole code", "bcdfghjk": "No device with the code BCDF-GHJK waits",
	} {
		b.fill("Code", typed)
		b.press("Continue")
		b.read(why)
		if got := b.attribute("#user_code", "value"); !strings.EqualFold(strings.ReplaceAll(got, "-", ""),
			strings.ReplaceAll(typed, "-", "")) {
			t.Errorf("the page shows %q for %q", got, typed)
		}
	}
	b.inspect("device-wrong")
	b.fill("Code", strings.ToLower(code))
	b.press("Continue")
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("Do the codes match?")
	b.read(code)
	for _, fact := range []string{
		s.OwnerEmail, "holdfast", "127.0.0.1", "just now", "Everything that you may do",
		"Did somebody send you this code or address?",
	} {
		b.read(fact)
	}
	b.inspect("confirm-device")
	b.press("Allow")
	b.see("You are signed in")
	l.succeeds()
	p.works()
}

func TestSetUp(t *testing.T) {
	t.Parallel()
	s := start(t, server.Config{DataDir: t.TempDir()})
	b, p := newTab(t), s.person(t)
	link := regexp.MustCompile(`http://localhost:\d+/setup\?code=\S+`).FindString(s.log.String())
	b.open(s.BaseURL + "/setup?code=" + strings.Repeat("x", 43))
	b.read("the set-up code is wrong") // the error is shown before the form is filled in
	c := newTab(t)
	c.open(s.BaseURL + "/setup")
	c.inspect("setup-code")
	b.open(link)
	b.see("Set up Holdfast")
	b.inspect("setup")
	b.fill("Organization", "Größe & Söhne")
	b.fill("Your name", "Zoë Müller")
	b.fill("Your e-mail", "ann@example.com")
	b.fill("Your password", "password1234")
	b.press("Set up")
	b.read("easy to guess")
	b.inspect("setup-wrong")
	b.fill("Your password", "nine unrelated words")
	b.press("Set up")
	b.see("Holdfast is set up")
	b.read("Größe & Söhne exists, in paths grosse-sohne, and Zoë Müller owns it. You are signed in")
	b.inspect("setup-done")
	if got := b.attribute("main a.button", "pathname"); got != "/console/" {
		t.Errorf("after the set-up, the first button leads to %s, want the console", got)
	}
	b.press("Your account")
	b.see("Your account")
	b.read("Zoë Müller")
	b.read("Größe & Söhne")
	b.signOut(s)

	l := p.login()
	b.open(l.address())
	b.signIn("ann@example.com", "nine unrelated words")
	b.see("You are signed in")
	l.succeeds()
	if got := p.run("iam", "groups", "list", "--columns", "name"); !strings.Contains(got, "grosse-sohne") {
		t.Errorf("groups = %q, want grosse-sohne", got)
	}
	want := regexp.MustCompile(`(?m)^identity +Zoë Müller$\nproven by +an account at http`)
	if got := p.run("whoami"); !want.MatchString(got) {
		t.Errorf("whoami = %q, want a name", got)
	}
}

// TestPageWeight checks that a browser loads at most 30,000 bytes for the sign-in page.
func TestPageWeight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	total := 0
	for _, path := range []string{
		"/oauth?client_id=holdfast&exit=redirect&redirect=http%3A%2F%2F127.0.0.1%3A1%2F%3Ftoken%3Dtrue%26error%3Dtrue",
		"/signin/style.css", "/signin/signin.js", "/signin/icon.svg",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.BaseURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // the body has been read
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s = %s, %v", path, resp.Status, err)
		}
		t.Logf("%6d bytes %s", len(body), resp.Request.URL.Path)
		total += len(body)
	}
	if total > 30_000 {
		t.Errorf("the page weighs %d bytes, want 30,000 at most", total)
	}
}
