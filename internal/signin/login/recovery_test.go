package login_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var codeText = regexp.MustCompile(`<code>([A-Z2-7]{5}-[A-Z2-7]{5})</code>`)

func codesIn(a answer) (all []string) {
	for _, m := range codeText.FindAllStringSubmatch(a.body, -1) {
		all = append(all, m[1])
	}
	return all
}

// setUpApp sets up an authenticator app for the owner, who is signed in, and
// returns the recovery codes that are shown.
func (b *browser) setUpApp() []string {
	b.t.Helper()
	csrf := b.csrf()
	secret := strings.ReplaceAll(
		secretText.FindString(b.post("/account/totp/start", "csrf", csrf, "current", password).body), " ", "",
	)
	code := must[string](b.t)(totp.GenerateCode(secret, b.x.clock.now()))
	a := b.post("/account/totp", "csrf", csrf, "code", code)
	if len(codesIn(a)) != 10 {
		b.t.Fatalf("no recovery codes: %d\n%s", a.status, a.body)
	}
	return codesIn(a)
}

// halfway returns a browser in which the password was right, and its flow.
func (x *site) halfway(t *testing.T) (b *browser, flow string) {
	t.Helper()
	b = x.browser(t)
	flow = b.start(forCommand(""))
	if a := b.password(flow, ownerEmail, password); a.location != "" ||
		!strings.Contains(a.body, `action="/signin/recovery"`) {
		t.Fatalf("a password is enough, or no recovery code is asked for: %d\n%s", a.status, a.body)
	}
	return b, flow
}

// recovers reports whether a recovery code signs in.
func (x *site) recovers(t *testing.T, code string) bool {
	t.Helper()
	b, flow := x.halfway(t)
	a := b.post("/signin/recovery", "flow", flow, "recovery", code)
	in := strings.Contains(a.location, "token=")
	if !in && (a.status != http.StatusUnauthorized || b.session() != "") {
		t.Errorf("%q is neither taken nor refused: %d %s", code, a.status, a.location)
	}
	return in
}

func TestRecovery(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b := x.browser(t)
		b.signIn()
		codes := b.setUpApp()
		if slices.Sort(codes); len(slices.Compact(slices.Clone(codes))) != 10 {
			t.Errorf("codes that are the same: %v", codes)
		}
		page := b.get("/account")
		if !strings.Contains(page.body, "10 left") || len(codesIn(page)) > 0 {
			t.Errorf("the account page has codes, or does not count them:\n%s", page.body)
		}
		if !x.recovers(t, " "+strings.ToLower(strings.ReplaceAll(codes[0], "-", " "))) {
			t.Error("a code, typed as people do, is refused")
		}
		for name, code := range map[string]string{"one that was used": codes[0], "one of nobody": "AAAAA-AAAAA",
			"nothing": "", "two": codes[1] + codes[2]} {
			if x.recovers(t, code) {
				t.Errorf("%s is good", name)
			}
		}
		if !x.recovers(t, strings.NewReplacer("O", "0", "I", "1", "B", "8").Replace(codes[1])) {
			t.Error("a code with digits that look like its letters is refused")
		}
		if page := b.get("/account"); !strings.Contains(page.body, "8 left") {
			t.Errorf("after two:\n%s", page.body)
		}
		for _, c := range codes {
			if strings.Contains(x.logs.String(), c) {
				t.Errorf("the code %s is in the log", c)
			}
		}
	})
}

// TestRecoveryAnew: a person must enter the password to create new recovery codes. The old codes are void when there
// are new codes or when the authenticator app is removed.
func TestRecoveryAnew(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	if a := b.post("/account/recovery", "csrf", b.csrf(), "current", password); a.location != "/account" {
		t.Errorf("codes for an account without a second factor: %d\n%s", a.status, a.body)
	}
	old := b.setUpApp()
	if a := b.post("/account/recovery", "csrf", b.csrf(), "current", "wrong"); a.status != http.StatusBadRequest ||
		len(codesIn(a)) > 0 {
		t.Errorf("codes for a wrong password: %d", a.status)
	}
	if !x.recovers(t, old[0]) {
		t.Error("a code is void though there are no others")
	}
	fresh := codesIn(b.post("/account/recovery", "csrf", b.csrf(), "current", password))
	if len(fresh) != 10 || slices.Contains(fresh, old[1]) {
		t.Fatalf("the new codes are %v", fresh)
	}
	if x.recovers(t, old[1]) || !x.recovers(t, fresh[1]) {
		t.Error("the old codes are good, or the new ones are not")
	}
	if a := b.post("/account/totp/remove", "csrf", b.csrf(), "current", "wrong"); a.status != http.StatusBadRequest ||
		!strings.Contains(a.body, `id="totp-wrong"`) {
		t.Errorf("switching the app off with a wrong password: %d", a.status)
	}
	b.post("/account/totp/remove", "csrf", b.csrf(), "current", password)
	x.clock.move(time.Minute)
	again := b.setUpApp()
	if x.recovers(t, fresh[2]) || !x.recovers(t, again[0]) {
		t.Error("codes outlive the app that they stood in for")
	}
}

// TestRecoveryAttacks: a code does not sign in without the password or to another account, and guesses are limited.
func TestRecoveryAttacks(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	codes := b.setUpApp()
	for name, flow := range map[string]func(*browser) string{
		"no password": func(b *browser) string { return b.start(forCommand("")) },
		"a wrong password": func(b *browser) string {
			f := b.start(forCommand(""))
			b.password(f, ownerEmail,
				"wrong")
			return f
		},
		"no sign-in": func(*browser) string { return "" },
	} {
		c := x.browser(t)
		if a := c.post("/signin/recovery", "flow", flow(c), "recovery", codes[0]); strings.Contains(a.location, "token=") ||
			c.session() != "" {
			t.Errorf("a code after %s: %d %s", name, a.status, a.location)
		}
	}
	other := must[resource.Account](t)(x.addAccount(t, "other@example.test"))
	must[resource.Account](t)(x.store.UpdateAccount(t.Context(), other.UID, func(a *resource.Account) error {
		owner := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
		a.Password, a.TOTP = owner.Password, owner.TOTP
		return nil
	}))
	if err := x.store.SetRecoveryCodes(t.Context(), other.UID, [][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	c := x.browser(t)
	flow := c.start(forCommand(""))
	c.password(flow, other.Email, password)
	if a := c.post("/signin/recovery", "flow", flow, "recovery", codes[0]); a.status != http.StatusUnauthorized {
		t.Errorf("somebody else's code: %d %s", a.status, a.location)
	}
	d, flow := x.halfway(t)
	for i := range 10 {
		if a := d.post("/signin/recovery", "flow", flow, "recovery", fmt.Sprintf("AAAAA-AAAA%c",
			'A'+i)); a.status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", i, a.status)
		}
	}
	if a := d.post("/signin/recovery", "flow", flow, "recovery", codes[0]); a.status != http.StatusTooManyRequests ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("after guessing: %d", a.status)
	}
	x.clock.move(15 * time.Minute)
	if !x.recovers(t, codes[0]) {
		t.Error("after a while the code is still refused")
	}
}

// TestRacedRecovery: if a recovery code is used many times at the same time, exactly one use succeeds.
func TestRacedRecovery(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		b := x.browser(t)
		b.signIn()
		code := b.setUpApp()[0]
		var group sync.WaitGroup
		in := make(chan bool, 6)
		for range cap(in) {
			c, flow := x.halfway(t)
			group.Go(func() {
				a := c.post("/signin/recovery", "flow", flow, "recovery", code)
				in <- strings.Contains(a.location, "token=")
			})
		}
		group.Wait()
		close(in)
		n := 0
		for ok := range in {
			if ok {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d were let in", n)
		}
	})
}
