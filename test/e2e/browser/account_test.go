package browser_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/pquerna/otp/totp"
)

// account signs a person in and opens the person's account page.
func (b *tab) account(s *site, email, password string) {
	b.t.Helper()
	b.open(s.BaseURL + "/account")
	b.signIn(email, password)
	b.see("Your account")
}

// authenticator gives the browser a virtual fingerprint reader that accepts every finger.
func (b *tab) authenticator() {
	b.t.Helper()
	b.run("add an authenticator", webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}).Do(ctx)
		return err
	}))
}

func TestPasskey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.authenticator()
	b.account(s, s.OwnerEmail, s.OwnerPassword)
	b.fill("Name of a new passkey", "yellow key")
	b.press("Add a passkey")
	b.read("This is not your password") // the password field is still empty
	b.fill("Your password", s.OwnerPassword)
	b.run("require both", chromedp.Click(`input[name="required"][value="both"]`, chromedp.ByQuery))
	b.inspect("passkey")
	b.press("Add a passkey")
	b.read("yellow key")
	b.read("The passkey is added")
	b.read("Does everything in an organization")
	b.inspect("account")
	b.fill("Password", "not the password at all")
	b.press("Make them")
	b.read("It is not your password")
	if got := b.focused(); got != "Password" {
		t.Errorf("the focus is on %q, want Password", got)
	}
	b.inspect("account-wrong")
	b.fill("Password", s.OwnerPassword)
	b.press("Make them")
	recovery := b.recoveryCode()
	b.copies(s)
	b.inspect("recovery")
	b.signOut(s)

	l := p.login()
	b.open(l.address())
	b.see("Sign in")
	b.press("Use a passkey")
	b.see("You are signed in")
	l.succeeds()
	p.works()

	b.signOut(s)
	l = p.login() // signs in again, without the passkey
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("One more step")
	b.press("Use a recovery code")
	b.inspect("factor")
	b.fill("Recovery code", recovery)
	b.press("Sign in with it")
	b.see("You are signed in")
	l.succeeds()
}

// TestPasskeyChoice checks that after a passkey is added, the password alone still suffices unless the person chooses
// otherwise. If the passkey is required, there is another way to sign in.
func TestPasskeyChoice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.authenticator()
	b.account(s, s.OwnerEmail, s.OwnerPassword)
	b.fill("Name of a new passkey", "yellow key")
	b.fill("Your password", s.OwnerPassword)
	b.press("Add a passkey")
	b.read("Your password is enough, too")
	b.signOut(s)
	l := p.login()
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("You are signed in")
	l.succeeds()

	b.open(s.BaseURL + "/account")
	b.press("Change what your password needs")
	b.run("require both", chromedp.Click(`input[name="required"][value="both"]`, chromedp.ByQuery))
	b.fill("Password, to change it", s.OwnerPassword)
	b.press("Change it")
	b.read("A passkey is asked for after your password from now on")
	b.signOut(s)
	l = p.login()
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("One more step")
	b.read("an administrator of your organization can make a one-time link")
	b.inspect("factor-passkey")
	b.press("Start again")
	b.see("Sign in")
	b.press("Use a passkey")
	b.see("You are signed in")
	l.succeeds()
}

// TestFirstPage checks that the first page explains the server and links to the other pages. The error page for an
// unknown path links back to the first page.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newTab(t)
	b.open(s.BaseURL + "/no/such/page")
	b.see("There is nothing here")
	b.inspect("missing")
	b.press("The first page of this server")
	b.see("Welcome to Holdfast")
	b.inspect("home")
	b.press("Sign in")
	b.see("Sign in")
	b.open(s.BaseURL + "/login")
	b.see("Sign in")
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("Your account")
	b.open(s.BaseURL)
	b.read("You are signed in as")
	b.inspect("home-signed-in")
	b.signOut(s)
	b.inspect("signed-out")
	b.press("Sign in again")
	b.see("Sign in")
	b.open(s.BaseURL + "/login?organization=nothing")
	b.read("There is no organization of this name here")
	b.fill("Organization or work e-mail", "nobody")
	b.press("Continue")
	b.run("the next page shows what was asked for",
		chromedp.WaitVisible(`#organization[value="nobody"]`, chromedp.ByQuery))
	b.run("read it again", chromedp.WaitVisible(`#organization-wrong`, chromedp.ByQuery))
	b.inspect("signin-unknown")
}

// recoveryCode returns one of the recovery codes on the page.
func (b *tab) recoveryCode() (code string) {
	b.t.Helper()
	b.see("Your recovery codes")
	b.run("read a recovery code", chromedp.Text(".codes code", &code, chromedp.ByQuery))
	return code
}

// copies presses the button that copies the recovery codes, and checks the clipboard.
func (b *tab) copies(s *site) {
	b.t.Helper()
	var copied string
	clipboard := []browser.PermissionType{
		browser.PermissionTypeClipboardReadWrite, browser.PermissionTypeClipboardSanitizedWrite,
	}
	b.run("allow to paste", browser.GrantPermissions(clipboard).WithOrigin(s.BaseURL).WithBrowserContextID(b.person))
	b.press("Copy")
	b.read("Copied")
	b.run("paste",
		chromedp.Evaluate(`navigator.clipboard.readText()`, &copied,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var shown []string
	b.run("read the codes",
		chromedp.Evaluate(`[...document.querySelectorAll(".codes code")].map(e => e.textContent)`, &shown))
	if len(shown) != 10 || copied != strings.Join(shown, "\n")+"\n" {
		b.t.Errorf("copied %q, want the codes %q", copied, shown)
	}
}

// downloads downloads the recovery codes on the page, with scripts turned off.
func (b *tab) downloads(code string) {
	b.t.Helper()
	folder := b.t.TempDir()
	done := make(chan struct{})
	chromedp.ListenTarget(b.ctx, func(event any) {
		if p, ok := event.(*browser.EventDownloadProgress); ok && p.State == browser.DownloadProgressStateCompleted {
			close(done)
		}
	})
	b.run("allow downloads", browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllow).
		WithDownloadPath(folder).WithEventsEnabled(true).WithBrowserContextID(b.person))
	b.press("Download")
	select {
	case <-done:
	case <-time.After(patience):
		b.t.Fatal("the download does not end")
	}
	text, err := os.ReadFile(filepath.Join(folder, "holdfast-recovery-codes.txt"))
	if err != nil || !strings.Contains(string(text), code) {
		b.t.Errorf("the file is %q, %v; want the code %s in it", text, err, code)
	}
}

func (b *tab) signOut(s *site) {
	b.t.Helper()
	b.open(s.BaseURL + "/account")
	b.press("Sign out")
	b.see("You are signed out")
}

func TestAuthenticatorApp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, p := newTab(t), s.person(t)
	b.withoutScripts()
	b.account(s, s.OwnerEmail, s.OwnerPassword)
	b.press("Set up an authenticator app")
	b.fill("Password, to set it up", s.OwnerPassword)
	b.press("Set it up")
	b.see("Set up an authenticator app")
	b.inspect("totp")
	var sides []float64
	b.run("measure the QR code",
		chromedp.Evaluate(`(e => [parseFloat(getComputedStyle(e).width), e.naturalWidth])(document.querySelector(".qr"))`,
			&sides))
	if !slices.Equal(sides, []float64{240, 240}) {
		t.Errorf("the QR code is %v points wide and has %v, want 240", sides[0], sides[1])
	}
	var secret string
	b.run("read the secret", chromedp.Text(".code", &secret, chromedp.ByQuery))
	secret = strings.ReplaceAll(secret, " ", "")
	b.fill("Code", appCode(t, secret, time.Now()))
	b.press("Switch it on")
	recovery := b.recoveryCode()
	b.downloads(recovery)
	b.press("I have kept them")
	b.see("Your account")
	b.signOut(s)

	l := p.login()
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("One more step")
	// A code works only once, so use the code of the next 30 seconds.
	b.fill("Code from your authenticator app", appCode(t, secret, time.Now().Add(30*time.Second)))
	b.press("Continue")
	b.see("You are signed in")
	l.succeeds()
	p.works()

	b.signOut(s)
	l = p.login() // signs in again, without the authenticator app
	b.open(l.address())
	b.signIn(s.OwnerEmail, s.OwnerPassword)
	b.see("One more step")
	b.press("Use a recovery code")
	b.fill("Recovery code", strings.ToLower(recovery))
	b.press("Sign in with it")
	b.see("You are signed in")
	l.succeeds()
	p.works()
}

func appCode(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	code, err := totp.GenerateCode(secret, at)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestInvite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner, ann, b := s.owner(t), s.person(t), newTab(t)
	var invite struct{ UID, Code string }
	owner.json(&invite, "iam", "invites", "create", "--parent", "dev", "--role", "viewer", "--ttl", "1h",
		"--email", "ann@example.com", "--single-use")
	l := ann.login("--invite", invite.Code)
	b.open(l.address())
	b.see("Join dev")
	b.read("You are invited to")
	var first string
	b.run("find the first button", chromedp.Text("main button", &first, chromedp.ByQuery))
	if first != "Create an account" {
		t.Errorf("the first button is %q, want to create an account", first)
	}
	b.inspect("signin-invite")
	b.press("Create an account")
	b.see("Create your account")
	b.inspect("join")
	b.fill("Your name", "Ann Example")
	b.fill("Password", "password1234")
	b.press("Create the account")
	b.read("easy to guess")
	b.inspect("join-wrong")
	b.fill("Your name", "Ann Example")
	b.fill("Password", "nine unrelated words")
	b.press("Create the account")
	b.see("You are signed in")
	l.succeeds()
	ann.works()
	b.press("See what you may do")
	b.see("Welcome to dev")
	b.press("Open the console")
	b.see("Home")

	if got := owner.run("iam", "role-bindings", "list"); !strings.Contains(got, "Ann Example") {
		t.Errorf("role bindings = %q, want Ann Example", got)
	}
	if got := owner.run("iam", "invites", "joins", "--parent", "dev"); !strings.Contains(got, "ann@example.com") {
		t.Errorf("joins = %q, want ann@example.com", got)
	}
	b.open(s.BaseURL + "/join?code=" + invite.Code) // the invite cannot be used a second time
	b.run("see the problem", chromedp.WaitVisible(`[role=alert]`, chromedp.ByQuery))
	b.inspect("problem")
}

// TestJoinInBrowser joins with an invite. The last page must say what the new person may do and which command to run
// next, and that command must work.
func TestJoinInBrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner, ben, b := s.owner(t), s.person(t), newTab(t)
	owner.run("iam", "groups", "create", "web team", "--parent", "dev")
	invite := func(parent, role string) string {
		var made struct{ Code string }
		owner.json(&made, "iam", "invites", "create", "--parent", parent, "--role", role, "--ttl", "1h")
		return s.BaseURL + "/join?code=" + made.Code
	}
	b.open(invite("dev/web team", "registry.push"))
	b.press("Create an account")
	b.see("Create your account")
	b.fill("E-mail", "ben@example.com")
	b.fill("Your name", "Ben Example")
	b.fill("Password", "nine unrelated words")
	b.press("Create the account")
	b.see("Welcome to dev/web team")
	b.read("registry.push on dev/web team")
	b.read("Pushes and pulls images")
	b.read("By an invite")
	b.inspect("welcome")
	var commands string
	b.run("read the commands", chromedp.Text("main pre", &commands, chromedp.ByQuery))
	for line := range strings.Lines(commands) {
		args := strings.Split(strings.TrimSpace(line), " ")[1:]
		switch {
		case slices.Equal(args, []string{"auth", "login"}):
			b.again(ben.login())
		case strings.Contains(line, "'"):
			ben.run("iam", "tree", "dev/web team")
		default:
			ben.run(args...)
		}
	}
	b.open(invite("dev", "viewer")) // the person is already signed in when they open this second invite
	b.see("Join dev?")
	b.inspect("confirm-invite")
	b.press("Allow")
	b.see("Welcome to dev")
	b.read("Sees everything and pulls images")
	b.press("Your account")
	b.read("registry.push on dev/web team")
	b.read("viewer on dev")
}

// TestTwoOrganizations: if a person has accounts with the same e-mail address and password in two organizations, then
// the sign-in lets the person choose one.
func TestTwoOrganizations(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, owner := newTab(t), s.owner(t)
	owner.run("iam", "groups", "create", "another", "--root")
	var made struct{ Link struct{ URL string } }
	owner.json(&made, "iam", "accounts", "create", s.OwnerEmail, "--parent", "another")
	b.open(made.Link.URL)
	b.see("Welcome to another")
	b.fill("Password", s.OwnerPassword)
	b.press("Begin")
	b.see("Your account")
	b.signOut(s)
	c := newTab(t) // a new browser, because the server recognizes the old one and its account
	c.open(s.BaseURL + "/account")
	c.signIn(s.OwnerEmail, s.OwnerPassword)
	c.see("Which organization?")
	c.inspect("choose")
	c.press("another")
	c.see("Your account")
	c.read("another")
}

func TestAccountLink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner, eve, b := s.owner(t), s.person(t), newTab(t)
	var made struct{ Link struct{ URL string } }
	owner.json(&made, "iam", "accounts", "create", "eve@example.com", "--parent", "dev", "--role", "viewer",
		"--name", "Eve Example")
	b.withoutScripts()
	b.open(made.Link.URL)
	b.see("Welcome to dev")
	if strings.Contains(b.address(), "code=") {
		t.Errorf("the link's code stays in the address: %s", b.address())
	}
	b.inspect("link")
	b.fill("Password", "nine unrelated words")
	b.press("Begin")
	b.see("Your account")
	if got := b.attribute("main a.button", "pathname"); got != "/console/" {
		t.Errorf("after a password link, the first button leads to %s, want the console", got)
	}
	b.again(eve.login())
	eve.works()
	if got := eve.sessions(); len(got) != 2 {
		t.Errorf("sessions = %q, want one of the browser and one of the command", got)
	}

	b.again(eve.login())
	if got := eve.sessions(); len(got) != 2 {
		t.Errorf("sessions = %q, want the same two, because the second session of the command ends its first one", got)
	}
	eve.ends("auth", "logout")
	b.again(eve.login())
	me := eve.run("auth", "status", "-o", "id")
	eve.token = ""
	owner.endsAll(eve, me)
}

// again signs in to the command-line program with a browser that is still signed in.
func (b *tab) again(l *login) {
	b.t.Helper()
	b.open(l.address())
	b.see("Continue as")
	b.press("Allow")
	b.see("You are signed in")
	l.succeeds()
}

func (p *person) sessions() []string {
	p.t.Helper()
	return strings.Fields(p.run("auth", "sessions", "-o", "id"))
}

// ends runs a command that ends the session. It checks that the session's token, which has not expired, is no longer
// accepted.
func (p *person) ends(args ...string) {
	p.t.Helper()
	before := p.run("auth", "token")
	p.run(args...)
	p.token = before
	if _, said, err := p.try("iam", "groups", "list"); err == nil || !strings.Contains(said, "Unauthenticated") {
		p.t.Errorf("after %q a call with a token of the session returned %v: %s", args, err, said)
	}
	p.token = ""
}

// endsAll ends all sessions of another person, as an administrator, and checks that the person must sign in again.
func (p *person) endsAll(other *person, identity string) {
	p.t.Helper()
	p.run("auth", "sessions", "end", "--all", "--identity", identity)
	if _, said, err := other.try("iam", "groups", "list"); err == nil || !strings.Contains(said, "sign in again") {
		p.t.Errorf("after an administrator ended their sessions, a call returned %v: %s", err, said)
	}
}
