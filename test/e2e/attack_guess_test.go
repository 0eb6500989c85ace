package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// eachTimedWorld runs f with a new server, as storyWorld does. The server's clock does not move until the test advances
// it, so that no delay passes by itself on a slow machine.
func eachTimedWorld(t *testing.T, f func(t *testing.T, w *world, c *clock)) {
	t.Helper()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		start := time.Now()
		c := &clock{tick: func() time.Time { return start }}
		f(t, serve(t, url, server.Config{Now: c.now}, nil), c)
	})
}

// guessFrom sends wrong passwords from one address until the server demands a delay. It returns the number of
// passwords that the server checked.
func (w *world) guessFrom(t *testing.T, address, email string) (checked int) {
	t.Helper()
	b := w.signInBrowser(t, address)
	flow := b.begin()
	for i := range 50 {
		password := fmt.Sprint("guess number ", i)
		switch page := b.post("/signin/password", "flow", flow, "email", email, "password", password); page.status {
		case http.StatusUnauthorized:
			checked++
		case http.StatusTooManyRequests:
			return checked
		default:
			t.Fatalf("unexpected answer to a guess: %d\n%s", page.status, page.body)
		}
	}
	t.Fatalf("50 guesses from %s without a delay", address)
	return 0
}

// TestAttackLockOut checks that guessing passwords does not lock the owner out of an account, whether the guesses
// come from one address or from many. The guesses must be slowed down nevertheless.
func TestAttackLockOut(t *testing.T) {
	eachTimedWorld(t, func(t *testing.T, w *world, c *clock) {
		ann := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
		home := w.signInBrowser(t, "127.0.1.1")
		if page := home.try("", ann.email, ann.password); !page.in() {
			t.Fatalf("before the attack: %d\n%s", page.status, page.body)
		}
		home.Jar = withoutCookie(t, home, "hf_session")

		if n := w.guessFrom(t, "127.0.2.1", ann.email); n != 10 {
			t.Errorf("one address had %d guesses, want 10", n)
		}
		if page := w.signInBrowser(t, "127.0.1.2").try("", ann.email, ann.password); !page.in() {
			t.Errorf("the owner, in a new browser, after guesses from one address: %d\n%s", page.status, page.body)
		}
		total := 10
		for i := range 10 {
			total += w.guessFrom(t, fmt.Sprintf("127.0.3.%d", i+1), ann.email)
		}
		if total > 30 {
			t.Errorf("eleven addresses had %d guesses, want at most 30", total)
		}
		// From here on, unknown browsers must wait. A new browser of the owner is unknown, too.
		page := w.signInBrowser(t, "127.0.1.3").try("", ann.email, ann.password)
		if page.status != http.StatusTooManyRequests || page.header.Get("Retry-After") == "" {
			t.Errorf("a stranger with the right password: %d", page.status)
		}
		// A browser that has signed in before need not wait, even at an address from which guesses come.
		if page := home.try("", ann.email, ann.password); !page.in() {
			t.Errorf("the owner, in a browser that has signed in before: %d\n%s", page.status, page.body)
		}
		home.Jar = withoutCookie(t, home, "hf_session")
		near := w.signInBrowser(t, "127.0.2.1")
		near.Jar = home.Jar
		if page := near.try("", ann.email, ann.password); !page.in() {
			t.Errorf("the owner, at an address that guesses: %d\n%s", page.status, page.body)
		}
		// With a link from an administrator, the owner need not wait either.
		link := must[*signinpb.AccountLink](t, w.overGRPC, w.Token, &signinpb.CreateAccountLinkRequest{Uid: ann.uid})
		w.followLink(t, link.GetUrl(), "another yellow anchor of ann")
		c.advance(time.Hour)
		if page := w.signInBrowser(t, "127.0.1.4").try("", ann.email, "another yellow anchor of ann"); !page.in() {
			t.Errorf("after a quiet hour: %d\n%s", page.status, page.body)
		}
	})
}

// TestAttackKnownBrowser checks that the cookie of a browser that has signed in before allows only a few more tries,
// and only for the account to which the browser has signed in.
func TestAttackKnownBrowser(t *testing.T) {
	eachTimedWorld(t, func(t *testing.T, w *world, _ *clock) {
		const email = "ann@example.test"
		ann := w.personIn(t, w.Token, string(w.Organization), email, "a quiet violet anchor of ann")
		other, owner := w.ownedOrg(t, "other")
		w.personIn(t, owner, other, email, "the squatter's password")
		squatter := w.signInBrowser(t, "127.0.2.1")
		if page := squatter.try("other", email, "the squatter's password"); !page.in() {
			t.Fatalf("%d\n%s", page.status, page.body)
		}
		squatter.Jar = withoutCookie(t, squatter, "hf_session")
		stolen := w.signInBrowser(t, "127.0.2.1")
		if page := stolen.try("", email, ann.password); !page.in() {
			t.Fatalf("%d\n%s", page.status, page.body)
		}
		stolen.Jar = withoutCookie(t, stolen, "hf_session")
		w.guessFrom(t, "127.0.2.1", email)

		if page := squatter.try("", email, ann.password); page.in() {
			if page := squatter.get("/account"); !strings.Contains(page.body, "<dd>other</dd>") {
				t.Error("a browser known to its own account tries other accounts without limit")
			}
		}
		tries := 0
		for i := range 20 {
			if page := stolen.try("", email, fmt.Sprint("guess number ", i)); page.status == http.StatusTooManyRequests {
				break
			}
			tries++
		}
		if tries != 5 {
			t.Errorf("a stolen cookie allows %d tries, want 5", tries)
		}
		forged := w.signInBrowser(t, "127.0.2.1")
		base, err := url.Parse(w.BaseURL)
		if err != nil {
			t.Fatal(err)
		}
		forged.Jar.SetCookies(base, []*http.Cookie{{Name: "hf_known", Value: "made-up", Path: "/"}})
		if page := forged.try("", email, ann.password); page.status != http.StatusTooManyRequests {
			t.Errorf("a forged cookie: %d", page.status)
		}
	})
}

// TestAttackGuessBesideRight: if two accounts have the same e-mail address, then the owner of one account cannot use
// its correct password to guess the password of the other account without limit. Each such sign-in counts as a guess
// for the other account.
func TestAttackGuessBesideRight(t *testing.T) {
	const email, word = "ann@example.test", "the squatter's password"
	eachTimedWorld(t, func(t *testing.T, w *world, c *clock) {
		w.personIn(t, w.Token, string(w.Organization), email, "a quiet violet anchor of ann")
		other, owner := w.ownedOrg(t, "other")
		w.personIn(t, owner, other, email, word)
		for name, tt := range map[string]struct {
			organization string
			known        bool
		}{
			"as a stranger":                              {"", false},
			"naming the other organization":              {organizationName(t, w), false},
			"naming it, in a browser known to their own": {organizationName(t, w), true},
		} {
			c.advance(time.Hour) // the limits are reset after an hour
			b := w.signInBrowser(t, "127.0.2.1")
			for range 10 {
				if b.Jar = withoutCookie(t, b, "hf_session"); !tt.known {
					b = w.signInBrowser(t, "127.0.2.1")
				}
				if page := b.try(tt.organization, email, word); !page.in() {
					t.Fatalf("%s: %d\n%s", name, page.status, page.body)
				}
			}
			page := w.signInBrowser(t, "127.0.2.1").try("", email, "a quiet violet anchor of ann")
			if page.status != http.StatusTooManyRequests {
				t.Errorf("%s: the eleventh password for the other account was checked, too: %d", name, page.status)
			}
		}
	})
}

var shownFlow = regexp.MustCompile(`[A-Z2-7]{26}`)

// TestAttackLimitTellsNothing checks that a delay does not reveal whether an account exists. Each answer must be the
// same as for an address without an account.
func TestAttackLimitTellsNothing(t *testing.T) {
	eachTimedWorld(t, func(t *testing.T, w *world, _ *clock) {
		ann := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
		answers := map[string][]string{}
		for n, email := range []string{ann.email, "bob@example.test"} {
			for i := range 4 {
				b := w.signInBrowser(t, fmt.Sprintf("127.0.%d.%d", 4+n, i+1))
				flow := b.begin()
				for range 12 {
					page := b.post("/signin/password", "flow", flow, "email", email, "password", "wrong")
					text := shownFlow.ReplaceAllString(strings.ReplaceAll(page.body, email, "E"), "F")
					answers[email] = append(answers[email], fmt.Sprint(page.status, len(page.header["Set-Cookie"]), text))
				}
			}
		}
		for i, want := range answers[ann.email] {
			if got := answers["bob@example.test"][i]; got != want {
				t.Fatalf("answer %d differs:\n%s\n%s", i, want, got)
			}
		}
	})
}

// TestAttackFlowCookies: if a browser starts many sign-ins, then the cookies do not lock it out. Its requests stay
// small, and the most recent sign-ins work.
func TestAttackFlowCookies(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		b := w.signInBrowser(t, "127.0.0.1")
		base, err := url.Parse(w.BaseURL)
		if err != nil {
			t.Fatal(err)
		}
		long := "/oauth?exit=redirect&client_id=x&redirect=" +
			url.QueryEscape("http://127.0.0.1:1/?"+strings.Repeat("x", 900)) + "&state=" + strings.Repeat("s", 500)
		for i := range 150 {
			path := "/signin"
			if i%3 == 0 {
				path = long
			}
			if page := b.get(path); page.status != http.StatusSeeOther {
				t.Fatalf("sign-in %d does not start: %d", i, page.status)
			}
			size := 0
			for _, c := range b.Jar.Cookies(base) {
				size += len(c.String())
			}
			if size > 8<<10 {
				t.Fatalf("after %d sign-ins the browser sends %d bytes of cookies", i+1, size)
			}
		}
		first := b.begin()
		for range 5 {
			b.begin()
		}
		if page := b.post("/signin/password", "flow", first, "email", w.OwnerEmail, "password", w.OwnerPassword); !page.in() {
			t.Errorf("a sign-in with five more recent ones: %d\n%s", page.status, page.body)
		}
	})
}
