package login_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestNewDevice: a person gets a message about a sign-in with a browser that they have not used before, at the address
// that their provider has verified. If several people share a browser, each of them gets a message. A person who was
// just registered gets none.
func TestNewDevice(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	var queue *mail.Queue
	x := open(t, s, func(cfg *login.Config) {
		queue = mail.New(s.DB, mail.Config{Key: cfg.Key, Issuer: cfg.Issuer, Log: cfg.Log})
		cfg.Mail = queue
	})
	p := newProvider(t)
	idp := x.keep(t, p)
	told := 0
	through := func(what string, b *browser, want int) {
		t.Helper()
		if b.session() != "" {
			b.post("/signout", "csrf", b.csrf())
		}
		if a := b.get(p.answerTo(t, b.ask(idp))); b.session() == "" {
			t.Fatalf("%s: not signed in: %d %s", what, a.status, a.body)
		}
		n, _, err := queue.Waiting(t.Context())
		if err != nil || n-told != want {
			t.Errorf("%s: told %d times, %v, want %d", what, n-told, err, want)
		}
		told = n
	}
	b := x.browser(t)
	through("the first sign-in of all", b, 0)
	through("the same browser", b, 0)
	through("another one", x.browser(t), 1)
	p.claims["sub"], p.info["sub"] = "quinn", "quinn"
	p.claims["email_verified"] = false
	through("somebody else, who is new", b, 0)
	through("somebody whose address is not verified", x.browser(t), 0)
	p.claims["email_verified"] = true
	through("somebody whose address is verified now", x.browser(t), 1)
	through("the browser that they share", b, 0)
	b = x.browser(t)
	b.signIn() // this signs in with a local account
	if n, _, err := queue.Waiting(t.Context()); err != nil || n-told != 1 {
		t.Errorf("an account: told %d times, %v, want 1", n-told, err)
	}
}
