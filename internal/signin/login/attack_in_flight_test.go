package login_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
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
