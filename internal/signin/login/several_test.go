package login_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// second creates another organization, in which the owner's address has an
// account with the same password.
func (x *site) second(t *testing.T, name string) (resource.Group, resource.Account) {
	t.Helper()
	owner := must[resource.Account](t)(x.store.Account(t.Context(), x.owner.UID))
	org, a, _, err := x.CreateOrganization(
		t.Context(), name, resource.OrgUnspecified,
		resource.Account{Email: ownerEmail, Name: "Olga Owner", Password: owner.Password},
	)
	if err != nil {
		t.Fatal(err)
	}
	return org, a
}

var accountField = regexp.MustCompile(`name="account" value="([^"]+)">([^<]+)<`)

// TestSeveralAccounts: a person with the same password in two organizations must choose one account, but only after the
// password was right. They need not choose if they name the organization or return in the same browser.
func TestSeveralAccounts(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		_, other := x.second(t, "other")
		b := x.browser(t)
		flow := b.start(forCommand(""))
		if a := b.password(flow, ownerEmail, "wrong password"); a.status != http.StatusUnauthorized ||
			strings.Contains(a.body, "other") {
			t.Errorf("a wrong password: %d\n%s", a.status, a.body)
		}
		a := b.password(flow, ownerEmail, password)
		found := accountField.FindAllStringSubmatch(a.body, -1)
		if a.location != "" || len(found) != 2 || found[0][2] != "acme" || found[1][2] != "other" {
			t.Fatalf("%d %s %v\n%s", a.status, a.location, found, a.body)
		}
		if a := b.post("/signin/account", "flow", flow, "account",
			string(x.org.UID.NewChild())); !strings.HasPrefix(a.location, "/signin?flow=") || b.session() != "" {
			t.Errorf("an account that was not offered: %d %s", a.status, a.location)
		}
		a = b.post("/signin/account", "flow", flow, "account", string(other.UID))
		if c := x.caller(t, query(t, a.location).Get("token")); c.Identity != other.Identity {
			t.Errorf("the token is of %s, want %s", c.Identity, other.Identity)
		}
		named := x.browser(t)
		flow = named.start(forCommand(""))
		named.post("/signin/organization", "flow", flow, "organization", "acme")
		if c := x.caller(t, query(t, named.password(flow, ownerEmail,
			password).location).Get("token")); c.Identity != x.owner.Identity {
			t.Errorf("naming the organization: the token is of %s", c.Identity)
		}
		again := b.password(b.start(forCommand("&identity="+string(other.Identity))), ownerEmail, password)
		if c := x.caller(t, query(t, again.location).Get("token")); c.Identity != other.Identity {
			t.Errorf("the browser of before: the token is of %s", c.Identity)
		}
	})
}

// TestSeveralAccountsFactor: the chosen account decides which second factor is required.
func TestSeveralAccountsFactor(t *testing.T) {
	x := sqlite(t)
	_, other := x.second(t, "other")
	b := x.browser(t)
	flow := b.start("")
	b.password(flow, ownerEmail, password)
	b.post("/signin/account", "flow", flow, "account", string(x.owner.UID))
	codes := b.setUpApp()
	x.clock.move(time.Minute)
	for name, tt := range map[string]struct {
		account resource.UID
		asked   bool
	}{"of the one with an app": {x.owner.UID, true}, "of the other": {other.UID, false}} {
		c := x.browser(t)
		flow := c.start(forCommand(""))
		c.password(flow, ownerEmail, password)
		a := c.post("/signin/account", "flow", flow, "account", string(tt.account))
		if asked := strings.Contains(a.body, `action="/signin/totp"`); asked != tt.asked ||
			asked == strings.Contains(a.location, "token=") {
			t.Errorf("%s: %d %s\n%s", name, a.status, a.location, a.body)
		}
	}
	// The right password of one account gives no access to the other.
	c := x.browser(t)
	flow = c.start(forCommand(""))
	c.password(flow, ownerEmail, password)
	c.post("/signin/account", "flow", flow, "account", string(x.owner.UID))
	if a := c.post("/signin/account", "flow", flow, "account", string(other.UID)); strings.Contains(a.location, "token=") {
		t.Error("after one account was chosen, another can be")
	}
	if a := c.post("/signin/recovery", "flow", flow, "recovery", codes[0]); x.owner.Identity !=
		x.caller(t, query(t, a.location).Get("token")).Identity {
		t.Errorf("%d %s", a.status, a.location)
	}
}
