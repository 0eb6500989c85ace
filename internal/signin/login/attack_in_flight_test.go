package login_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackPasswordInFlight: an attacker signs in with a stolen password while its owner changes it. After the change,
// and after the owner has ended all sessions, the attacker has no session. The password is changed at every moment at
// which the sign-in reads the clock.
func TestAttackPasswordInFlight(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		var x *site
		var left atomic.Int64 // how often the clock is read before the change; negative after it
		left.Store(-1)
		setPassword := func(hash string) {
			if _, err := s.UpdateAccount(t.Context(), x.owner.UID, func(a *resource.Account) error {
				a.Password = hash
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		x = open(t, s, func(cfg *login.Config) {
			now := cfg.Now
			cfg.Now = func() time.Time {
				if left.Load() >= 0 && left.Add(-1) == -1 {
					setPassword("changed")
					if _, err := s.EndSessions(t.Context(), x.owner.Identity, ""); err != nil {
						t.Error(err)
					}
				}
				return now()
			}
		})
		before := must[resource.Account](t)(s.Account(t.Context(), x.owner.UID)).Password
		for moment := int64(0); ; moment++ {
			x.clock.move(time.Hour)
			b := x.browser(t)
			_, flow, _ := strings.Cut(b.get("/signin").location, "flow=")
			left.Store(moment)
			b.password(flow, ownerEmail, password)
			if left.Swap(-1) >= 0 { // the sign-in has ended before this moment
				if len(must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity))) == 0 || moment == 0 {
					t.Error("without a change, the sign-in has failed")
				}
				return
			}
			if n := len(must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity))); n > 0 {
				t.Errorf("moment %d: there are %d sessions after the password was changed", moment, n)
			}
			setPassword(before)
			if _, err := s.EndSessions(t.Context(), x.owner.Identity, ""); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAttackSessionInFlight: the sessions of a person end between the check of the session and the write of a page. The
// page starts no session for a program and changes no password.
func TestAttackSessionInFlight(t *testing.T) {
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
		attack := func(name string, f func()) {
			t.Helper()
			armed.Store(true)
			f()
			if armed.Load() {
				t.Errorf("%s: no write depended on the session", name)
			}
			left := must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity))
			if len(left) > 0 {
				t.Errorf("%s: there are %d sessions after all sessions were ended", name, len(left))
			}
		}
		signedIn := func() *browser {
			b := x.browser(t)
			b.signIn()
			return b
		}
		b := signedIn()
		flow := b.start(forCommand(""))
		attack("a token for a program", func() {
			if a := b.allow(flow); strings.Contains(a.location, "token=") {
				t.Errorf("a token was issued: %s", a.location)
			}
		})
		b = signedIn()
		query, code := headlessQuery(t)
		flow = b.start(query)
		attack("a token for a public key", func() { b.allow(flow) })
		if _, err := x.Headless(t.Context(), code); !errors.Is(err, fault.NotFound) {
			t.Errorf("a headless program: %v", err)
		}
		b = signedIn()
		device, flow := x.deviceFlow(t, b)
		attack("the approval of a device", func() { b.allow(flow) })
		if status, body := x.pollFor(t, device); fieldOf(t, body, "error") != "authorization_pending" {
			t.Errorf("a device: %d %s", status, body)
		}
		b = signedIn()
		device, flow = x.deviceFlow(t, b)
		b.allow(flow)
		attack("a token for an approved device", func() {
			if status, body := x.pollFor(t, device); fieldOf(t, body, "access_token") != "" {
				t.Errorf("an approved device: %d %s", status, body)
			}
		})
		b = signedIn()
		csrf := b.csrf()
		attack("a new password", func() {
			b.post("/account/password", "csrf", csrf, "current", password, "password", "another correct horse battery")
		})
		signedIn() // with the old password
	})
}

// madeLink returns a one-time link for an owner, which another owner has made, and the binding of the maker.
func (x *site) madeLink(t *testing.T, name string) (link accounts.OneTimeLink, binding resource.UID) {
	t.Helper()
	maker := resource.UserUID("https://people.test", name)
	binding = iamtest.AddBinding(t, x.store.IAMStore, x.org.UID, maker, resource.OwnerRole).UID
	as := authz.WithCaller(t.Context(), authz.Caller{Identity: maker, Issued: x.clock.now()})
	return must[accounts.OneTimeLink](t)(x.CreateLink(as, x.owner.UID, false)), binding
}

// TestAttackLinkInFlight: somebody follows a one-time link while its maker loses the access that the account has. If
// the maker has lost the access, the link sets no password. The access ends before the transaction and, on PostgreSQL,
// at every moment at which the transaction reads the clock. On SQLite, nothing else changes during a transaction.
func TestAttackLinkInFlight(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		var armed atomic.Bool
		var left atomic.Int64 // how often the clock is read before the access ends; negative after it
		left.Store(-1)
		var binding resource.UID
		before, committed := "", false // the password, and whether it was changed before the access ended
		revoke := func() {
			committed = x.credentials(t).Password != before
			if err := s.DeleteBinding(context.WithoutCancel(t.Context()), binding); err != nil {
				t.Error(err)
			}
		}
		s.BeforeWrite = func(context.Context) {
			if armed.CompareAndSwap(true, false) {
				revoke()
			}
		}
		now := s.Now
		s.Now = func() time.Time {
			if s.Engine.Postgres && left.Load() >= 0 && left.Add(-1) == -1 {
				revoke()
			}
			return now()
		}
		attack := func(name string, arm func()) (followed bool) {
			x.clock.move(time.Hour)
			var link accounts.OneTimeLink
			link, binding = x.madeLink(t, name)
			before, committed = x.credentials(t).Password, false
			b := x.browser(t)
			b.get(link.URL)
			arm()
			a := b.post("/link", "password", "another violet anchor "+name)
			followed = x.credentials(t).Password != before
			if followed != (a.location == "/account") {
				t.Errorf("%s: status %d, password changed: %t", name, a.status, followed)
			}
			return followed
		}
		if !attack("nothing", func() {}) {
			t.Error("a link whose maker keeps the access cannot be followed")
		}
		revoke()
		if attack("before the write", func() { armed.Store(true) }) {
			t.Error("a link was followed although its maker had lost the access")
		}
		if armed.Swap(false) {
			t.Error("no write depends on the access of the link's maker")
		}
		for moment := int64(0); s.Engine.Postgres; moment++ {
			followed := attack(fmt.Sprint("moment ", moment), func() { left.Store(moment) })
			if left.Swap(-1) >= 0 || committed { // this moment is after the commit
				if moment < 3 || !followed {
					t.Errorf("the clock was read %d times, the link was followed: %t", moment, followed)
				}
				return
			}
			if followed {
				t.Errorf("moment %d: the link was followed after its maker had lost the access", moment)
			}
		}
	})
}
