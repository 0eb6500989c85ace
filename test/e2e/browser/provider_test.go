package browser_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// upstream runs an OpenID provider until the test ends. name is the program.
func upstream(t *testing.T, address, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(needs(t), "node_modules"))
	var said logBook
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err == nil { // an error is expected, because the process is killed
			t.Errorf("%s has ended unexpectedly: %s", name, said.String())
		}
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for expired := time.After(patience); ; {
		if answers(t, "http://"+address+"/.well-known/openid-configuration") {
			return
		}
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("%s: %v\n%s", name, err, said.String())
		case <-expired:
			t.Fatalf("%s does not serve:\n%s", name, said.String())
		}
	}
}

func answers(t *testing.T, address string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // only the status is needed
	return resp.StatusCode == http.StatusOK
}

// redirectAddress returns the redirect address, which all identity providers share. It is known before a provider
// exists.
func redirectAddress(p *person) string {
	p.t.Helper()
	return strings.TrimSpace(p.run("iam", "identity-providers", "redirect-address"))
}

// signInAtDex fills in the sign-in form of the provider dex.
func (b *tab) signInAtDex() {
	b.t.Helper()
	b.run("sign in at dex", chromedp.WaitVisible("#login", chromedp.ByQuery),
		chromedp.SendKeys("#login", "ann@example.com", chromedp.ByQuery),
		chromedp.SendKeys("#password", "ann's at dex", chromedp.ByQuery), chromedp.Click("#submit-login", chromedp.ByQuery))
}

func TestDex(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner, ann, b := s.owner(t), s.person(t), newTab(t)
	address, secret := testkit.FreeAddress(t), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the secret of dex"), 0o600); err != nil {
		t.Fatal(err)
	}
	upstream(t, address, testprogram.Path(t, "browser-dex"), "-listen", address, "-client-secret", "the secret of dex",
		"-redirect", redirectAddress(owner), "-email", "ann@example.com", "-password", "ann's at dex")
	provider := owner.run("iam", "identity-providers", "create", "dex", "--wizard", "--recipe", "other",
		"--parent", "dev", "--issuer", "http://"+address, "--client-id", "holdfast", "--client-secret-file", secret,
		"--scope", "email", "--scope", "profile", "--scope", "groups", "--groups-claim", "groups",
		"--default-role", "viewer", "-o", "id")
	tested := owner.run("iam", "identity-providers", "test", provider)
	if trial := regexp.MustCompile(`http://localhost:\S+`).FindAllString(tested, -1); len(trial) > 0 {
		b.open(trial[len(trial)-1])
		b.signInAtDex()
		b.see("dex works")
		b.read("ann@example.com")
		b.inspect("trial")
	} else {
		t.Error("the command prints no address for a trial sign-in")
	}
	owner.run("iam", "identity-providers", "update", provider, "--enable")
	owner.run("iam", "group-mappings", "create", "eng", "--provider", provider, "--role", "editor")

	l := ann.login("--provider", provider)
	b.open(l.address())
	b.signInAtDex()
	b.see("You are signed in")
	l.succeeds()
	ann.works()
	got := ann.run("auth", "status")
	for _, want := range []string{"ann@example.com", "http://" + address, "Ann Example", "dev/dex"} {
		if !strings.Contains(got, want) {
			t.Errorf("status = %s, want %s", got, want)
		}
	}
	b.press("Your account, and where you are signed in")
	b.see("Your account")
	for _, want := range []string{
		"editor on dev", "From your group eng at dex", "viewer on dev", "What dex gives to newcomers",
	} {
		b.read(want)
	}
	b.inspect("account-provider")
	b.signOut(s)
	b.press("Sign in again")
	b.see("Sign in")
	b.firstWay("Continue with dex (dev)") // this browser remembers the provider
	b.inspect("signin-provider")
	c := newTab(t) // another browser does not remember the provider until the person names the organization
	c.open(s.BaseURL + "/signin")
	c.see("Sign in")
	c.firstWay("")
	c.open(s.BaseURL + "/signin?organization=dev")
	c.see("Sign in to dev")
	c.firstWay("Continue with dex")
	c.press("Continue with dex")
	c.signInAtDex()
	c.see("Your account")
	me := ann.run("auth", "status", "-o", "id")
	if got := owner.run("iam", "role-bindings", "list", "--identity", me,
		"--columns", "role"); !strings.Contains(got, "viewer") || !strings.Contains(got, "editor") {
		t.Errorf("roles = %s, want viewer (the default) and editor (of the group)", got)
	}
}

// firstWay fails the test unless the page offers this provider first. If want is "", the page must offer no provider
// first.
func (b *tab) firstWay(want string) {
	b.t.Helper()
	var got string
	b.run("find the first way",
		chromedp.Evaluate(`(e => e?.classList.contains("button") ? e.innerText.trim() : "")(`+
			`document.querySelector("main .button, main input:not([type=hidden])"))`, &got))
	if got != want {
		b.t.Errorf("the first way to sign in is %q, want %q", got, want)
	}
}

func TestCertifiedProvider(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner, ben, b := s.owner(t), s.person(t), newTab(t)
	address := testkit.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	upstream(t, address, testprogram.Path(t, "node/bin/node"), "provider.mjs", port, "holdfast", redirectAddress(owner))
	owner.run("iam", "identity-providers", "create", "certified", "--wizard", "--recipe", "other",
		"--parent", "dev", "--issuer", "http://"+address, "--client-id", "holdfast",
		"--pkce", "--scope", "email", "--scope", "profile", "--default-role", "viewer", "--enable", "-o", "id")

	l := ben.login()
	b.open(l.address())
	b.see("Sign in")
	b.fill("Organization or work e-mail", "dev")
	b.press("Continue")
	b.press("Continue with certified")
	b.run("sign in there", chromedp.WaitVisible(`input[name=login]`, chromedp.ByQuery),
		chromedp.SendKeys(`input[name=login]`, "ben", chromedp.ByQuery),
		chromedp.SendKeys(`input[name=password]`, "any", chromedp.ByQuery),
		chromedp.Click(`button[type=submit]`, chromedp.ByQuery),
		chromedp.WaitVisible(`//button[contains(., "Continue")]`), chromedp.Click(`//button[contains(., "Continue")]`))
	b.see("You are signed in")
	l.succeeds()
	ben.works()
	if got := ben.run("auth", "status"); !strings.Contains(got, "ben@example.com") {
		t.Errorf("status = %s, want ben@example.com", got)
	}
}
