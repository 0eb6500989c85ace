package login_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A held is a credential or a sign-in in progress that a person holds. Each function prepares one for the owner, and
// returns a function that uses it and reports whether it gives access.
type held func(t *testing.T, x *site) (use func() bool)

// heldCredentials are the ways in which a person can get access at the sign-in pages, or keep it.
var heldCredentials = map[string]held{
	"password": func(t *testing.T, x *site) func() bool {
		return func() bool {
			b := x.browser(t)
			return signsIn(b.password(b.start(forCommand("")), ownerEmail, password))
		}
	},
	"passkey": func(t *testing.T, x *site) func() bool {
		b, d := x.browser(t), x.authenticator(t)
		b.signIn()
		b.register(d)
		return func() bool {
			c := x.browser(t)
			flow := c.start(forCommand(""))
			return signsIn(c.prove(flow, d.sign(c.begin(flow))))
		}
	},
	"second factor after the password": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		code := b.setUpApp()[0]
		c, flow := x.halfway(t)
		return func() bool { return signsIn(c.post("/signin/recovery", "flow", flow, "recovery", code)) }
	},
	"session of a browser": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		return func() bool { return b.get("/account").status == http.StatusOK }
	},
	"session that approves a program": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		flow := b.start(forCommand(""))
		return func() bool { return signsIn(b.allow(flow)) }
	},
	"device that waits for an approval": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		device, flow := x.deviceFlow(t, b)
		return func() bool {
			b.allow(flow)
			_, body := x.pollFor(t, device)
			return strings.Contains(body, "access_token")
		}
	},
	"device that was approved": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		device, flow := x.deviceFlow(t, b)
		b.allow(flow)
		return func() bool {
			_, body := x.pollFor(t, device)
			return strings.Contains(body, "access_token")
		}
	},
	"program without a browser": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		query, code := headlessQuery(t)
		b.allow(b.start(query))
		return func() bool {
			_, err := x.Headless(t.Context(), code)
			if err != nil && !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.PermissionDenied) {
				t.Error(err)
			}
			// The token is sealed for the program. It is void if its session has ended.
			return err == nil && len(must[[]resource.Session](t)(x.store.Sessions(t.Context(), x.owner.Identity))) == 2
		}
	},
	"refresh token": func(t *testing.T, x *site) func() bool {
		b := x.browser(t)
		b.signIn()
		refresh := query(t, b.allow(b.start(forCommand("&create_refresh_token=true"))).location).Get("refresh_token")
		if refresh == "" {
			t.Fatal("no refresh token was issued")
		}
		return func() bool {
			_, _, err := x.sts.Refresh(t.Context(), refresh, sts.TokenParams{Audience: []string{x.url}})
			return err == nil
		}
	},
	"one-time link of the account": func(t *testing.T, x *site) func() bool {
		link := must[accounts.OneTimeLink](t)(x.CreateLink(x.operator(t), x.owner.UID, false))
		return func() bool { return x.follows(t, link) }
	},
	"one-time link that the person made for somebody else": func(t *testing.T, x *site) func() bool {
		other := x.other(t)
		owner := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity, Issued: x.clock.now()})
		link := must[accounts.OneTimeLink](t)(x.CreateLink(owner, other.UID, false))
		return func() bool { return x.follows(t, link) }
	},
}

// operator returns a context whose caller is another owner, who stays.
func (x *site) operator(t *testing.T) context.Context {
	t.Helper()
	uid := resource.UserUID("https://people.test", "other owner")
	if _, err := x.store.Identity(t.Context(), uid); errors.Is(err, fault.NotFound) {
		i := resource.Identity{UID: uid, Name: "other", Realm: "https://people.test", CreateTime: x.clock.now(),
			UpdateTime: x.clock.now(), LastSeenTime: x.clock.now(), Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://people.test", Subject: "other owner"}}}
		if err := x.store.InsertIdentity(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		iamtest.AddBinding(t, x.store.IAMStore, x.org.UID, uid, resource.OwnerRole)
	}
	return authz.WithCaller(t.Context(), authz.Caller{Identity: uid, Issued: x.clock.now()})
}

// follows reports whether a one-time link sets a password.
func (x *site) follows(t *testing.T, link accounts.OneTimeLink) bool {
	t.Helper()
	b := x.browser(t)
	b.get(link.URL)
	return b.post("/link", "password", nextPassword).location == "/account"
}

// TestAttackDeactivated checks that each credential of a person, and each sign-in in progress, stops when a directory
// deactivates the person, and that the same credential works as long as nobody deactivates the person. Sessions and
// tokens from before do not work again when the directory activates the person.
func TestAttackDeactivated(t *testing.T) {
	for name, prepare := range heldCredentials {
		t.Run(name, func(t *testing.T) {
			for _, deactivated := range []bool{false, true} {
				storetest.Story(t, func(t *testing.T, s *storetest.Store) {
					x := open(t, s)
					use := prepare(t, x)
					if deactivated {
						x.deactivate(t)
					}
					if got := use(); got == deactivated {
						t.Errorf("deactivated: %t, access: %t", deactivated, got)
					}
					if left := must[[]resource.Session](t)(s.Sessions(t.Context(), x.owner.Identity)); deactivated && len(left) > 0 {
						t.Errorf("%d sessions are left", len(left))
					}
				})
			}
		})
	}
}

// deactivate deactivates the owner, as a directory does.
func (x *site) deactivate(t *testing.T) {
	t.Helper()
	x.clock.move(2 * time.Second)
	if err := x.store.DB.Write(t.Context(), func(tx *store.Tx) error {
		_, err := iamdb.In(tx).Suspend(t.Context(), x.owner.Identity, x.org.UID.NewChild())
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
