package login_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const nextPassword = "another correct horse battery"

// sessionPages are the pages that write and rely on the session of the browser. Each function makes what the page
// needs, and returns the request.
var sessionPages = map[string]func(b *browser) (send func()){
	"POST /account/password": func(b *browser) func() {
		csrf := b.csrf()
		return func() {
			b.post("/account/password", "csrf", csrf, "current", password, "password", nextPassword)
		}
	},
	"POST /account/totp": func(b *browser) func() {
		csrf := b.csrf()
		page := b.post("/account/totp/start", "csrf", csrf, "current", password).body
		secret := strings.ReplaceAll(secretText.FindString(page), " ", "")
		code := must[string](b.t)(totp.GenerateCode(secret, b.x.clock.now()))
		return func() { b.post("/account/totp", "csrf", csrf, "code", code) }
	},
	"POST /account/totp/remove": func(b *browser) func() {
		b.setUpApp()
		csrf := b.csrf()
		return func() { b.post("/account/totp/remove", "csrf", csrf, "current", password) }
	},
	"POST /account/recovery": func(b *browser) func() {
		code := b.setUpApp()[0]
		if !b.x.recovers(b.t, code) { // otherwise the number of codes would not change
			b.t.Fatal("a recovery code is wrong")
		}
		csrf := b.csrf()
		return func() { b.post("/account/recovery", "csrf", csrf, "current", password) }
	},
	"POST /account/passkeys": func(b *browser) func() {
		csrf, d := b.csrf(), b.x.authenticator(b.t)
		q := ask(b.t, b.script("/account/passkeys/start", map[string]any{"csrf": csrf, "current": password}))
		fields := map[string]any{"csrf": csrf, "name": "key", "credential": d.make(q)}
		return func() { b.script("/account/passkeys", fields) }
	},
	"POST /account/passkeys/remove": func(b *browser) func() {
		d := b.x.authenticator(b.t)
		b.register(d)
		csrf := b.csrf()
		return func() {
			b.post("/account/passkeys/remove", "csrf", csrf, "current", password, "id", b64(d.id))
		}
	},
	"POST /account/factor": func(b *browser) func() {
		csrf := b.csrf()
		return func() { b.post("/account/factor", "csrf", csrf, "current", password, "required", "either") }
	},
	"POST /account/sessions/end": func(b *browser) func() {
		csrf := b.csrf()
		n := must[[]resource.Session](b.t)(b.x.store.Sessions(b.t.Context(), b.x.owner.Identity))[0]
		return func() { b.post("/account/sessions/end", "csrf", csrf, "id", n.ID) }
	},
	"POST /signout": func(b *browser) func() {
		csrf := b.csrf()
		return func() { b.post("/signout", "csrf", csrf) }
	},
}

// pagesWithoutSession are the other pages to which forms are sent, each with the reason why the end of a session does
// not concern it, or with the test that ends the session.
var pagesWithoutSession = map[string]string{
	"POST /account/totp/start":         "writes nothing: the secret is in a cookie",
	"POST /account/passkeys/start":     "writes only the ceremony, which has no effect by itself",
	"POST /device":                     "only looks up the code of a device",
	"POST /link":                       "TestAttackLinkInFlight",
	"POST /oauth/device_authorization": "relies on nothing",
	"POST /oauth/token":                "TestAttackSessionInFlight",
	"POST /signin/account":             "relies on the password",
	"POST /signin/confirm":             "TestAttackSessionInFlight",
	"POST /signin/join":                "relies on the invite and on the provider",
	"POST /signin/join/start":          "writes nothing",
	"POST /signin/organization":        "writes nothing",
	"POST /signin/other":               "ends the session",
	"POST /signin/passkey":             "relies on the passkey",
	"POST /signin/passkey/start":       "relies on nothing",
	"POST /signin/password":            "TestAttackPasswordInFlight",
	"POST /signin/provider":            "writes nothing",
	"POST /signin/recovery":            "relies on the password and the recovery code",
	"POST /signin/totp":                "relies on the password and the one-time password",
}

// TestPagesInFlight fails if there is a page with a form that no test interrupts.
func TestPagesInFlight(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range []string{".", "../selfservice"} {
		for _, name := range must[[]string](t)(filepath.Glob(filepath.Join(folder, "*.go"))) {
			if !strings.HasSuffix(name, "_test.go") {
				for _, pattern := range formsIn(t, name) {
					found[pattern] = true
				}
			}
		}
	}
	for pattern := range found {
		if sessionPages[pattern] == nil && pagesWithoutSession[pattern] == "" {
			t.Errorf("no test ends the session while a form is sent to %s", pattern)
		}
	}
	for pattern := range sessionPages {
		if !found[pattern] {
			t.Errorf("there is no page %s", pattern)
		}
	}
	for pattern := range pagesWithoutSession {
		if !found[pattern] || sessionPages[pattern] != nil {
			t.Errorf("pagesWithoutSession must not have %s", pattern)
		}
	}
}

// formsIn returns the patterns in a file of Go that contain the method POST.
func formsIn(t *testing.T, name string) []string { return patternsIn(t, name, "POST ") }

// patternsIn returns the texts in a file of Go that begin with one of the prefixes.
func patternsIn(t *testing.T, name string, prefixes ...string) (patterns []string) {
	file := must[*ast.File](t)(parser.ParseFile(token.NewFileSet(), name, nil, 0))
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err == nil && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) }) {
				patterns = append(patterns, text)
			}
		}
		return true
	})
	return patterns
}

// TestAttackPagesInFlight: the sessions of a person end between the check of the session and the write of each account
// page. The page changes nothing. If the sessions do not end, it does.
func TestAttackPagesInFlight(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		var x *site
		var armed atomic.Bool
		s.BeforeWrite = func(context.Context) {
			if armed.CompareAndSwap(true, false) {
				if _, err := s.EndSessions(t.Context(), x.owner.Identity, ""); err != nil {
					t.Error(err)
				}
			}
		}
		x = open(t, s)
		initial := x.credentials(t)
		for pattern, prepare := range sessionPages {
			for _, attacked := range []bool{false, true} {
				x.reset(t, initial)
				b := x.browser(t)
				b.signIn()
				send, account := prepare(b), x.credentials(t)
				before := len(must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity)))
				armed.Store(attacked)
				send()
				if armed.Swap(false) {
					t.Errorf("%s: no write depended on the session", pattern)
				}
				after := len(must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity)))
				changed := !reflect.DeepEqual(x.credentials(t), account)
				switch {
				case attacked && (changed || after > 0):
					t.Errorf("%s: after all sessions were ended, there are %d; changed: %t", pattern, after, changed)
				case !attacked && !changed && before == after:
					t.Errorf("%s changes nothing", pattern)
				}
			}
		}
	})
}

// credentials returns the account of the owner without the fields that a sign-in changes.
func (x *site) credentials(t *testing.T) resource.Account {
	t.Helper()
	a := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
	a.UseTime, a.UpdateTime, a.TOTPStep = time.Time{}, time.Time{}, 0
	for i := range a.Passkeys {
		a.Passkeys[i] = resource.Passkey{ID: a.Passkeys[i].ID}
	}
	return a
}

// reset gives the owner the initial credentials and ends all sessions.
func (x *site) reset(t *testing.T, initial resource.Account) {
	t.Helper()
	x.clock.move(time.Hour) // past the limits of attempts
	for _, k := range x.credentials(t).Passkeys {
		if err := x.store.DropPasskey(t.Context(), x.owner.UID, k.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := x.store.UpdateAccount(t.Context(), x.owner.UID, func(a *resource.Account) error {
		a.Password, a.TOTP, a.TOTPStep, a.PasswordAlone = initial.Password, nil, 0, initial.PasswordAlone
		return nil
	})
	if err == nil {
		_, err = x.store.EndSessions(t.Context(), x.owner.Identity, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}
