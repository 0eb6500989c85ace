package login_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestRecoverOwner: a recovery link for an owner who is locked out removes the other factors of the account, because
// the owner may have lost them. It also allows local accounts again, because the provider may be lost.
func TestRecoverOwner(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		idp := x.keep(t, p)
		x.browser(t).through(p, idp)
		bind := resource.RoleBinding{
			UID: x.org.UID.NewChild(), Identity: resource.UserUID(idp.Realm, "pat"), Role: resource.OwnerRole,
			CreateTime: x.clock.now(),
		}
		must[[]resource.BoundRole](t)(s.InsertBindings(t.Context(), []resource.RoleBinding{bind}))
		admin := authz.WithCaller(t.Context(), authz.Caller{Identity: x.owner.Identity})
		if err := x.SetRules(admin, resource.SignInRules{Organization: x.org.UID, LocalOff: true}); err != nil {
			t.Fatal(err)
		}
		must[resource.Account](t)(s.UpdateAccount(t.Context(), x.owner.UID, func(a *resource.Account) error {
			a.TOTP = []byte("sealed")
			return nil
		}))
		r, err := x.RecoverOwner(t.Context(), x.org, "")
		if err != nil || r.Created || !r.AllowLocal || r.Account.UID != x.owner.UID {
			t.Fatalf("%+v, %v", r, err)
		}
		b := x.browser(t)
		b.get(r.Link.URL)
		if a := b.post("/link", "password", "another violet anchor"); a.location != "/account" {
			t.Fatalf("%d\n%s", a.status, a.body)
		}
		if a := must[resource.Account](t)(s.Account(t.Context(), x.owner.UID)); len(a.TOTP) > 0 {
			t.Error("the authenticator app is still needed")
		}
		b = x.browser(t)
		if a := b.password(b.start(forCommand("")), ownerEmail, "another violet anchor"); !strings.Contains(a.location,
			"token=") {
			t.Errorf("the owner cannot sign in: %d\n%s", a.status, a.body)
		}
		if r, err = x.RecoverOwner(t.Context(), x.org, ""); err != nil || r.AllowLocal {
			t.Errorf("accounts are said to be switched on again: %v", err)
		}
	})
}

// TestRecoverOwnerAsks: if the choice of the owner is not clear, RecoverOwner returns an error that says what to do,
// and creates nothing.
func TestRecoverOwnerAsks(t *testing.T) {
	x := open(t, storetest.Open(t, storetest.SQLite(t)))
	org := x.org
	asks := func(email, want string) {
		t.Helper()
		_, err := x.RecoverOwner(t.Context(), org, email)
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), want) {
			t.Errorf("for %q: %v, want %q", email, err, want)
		}
	}
	asks("eve@example.com", ownerEmail)
	if _, _, err := x.AddAccount(t.Context(), x.org.UID, resource.Account{Email: "second@example.com"},
		resource.OwnerRole); err != nil {
		t.Fatal(err)
	}
	asks("", "second@example.com")
	org.UID = resource.NewRoot() // nobody owns this organization
	asks("", "--email")
}
