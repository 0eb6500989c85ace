package iamtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// OwnIssuer is the issuer of the tokens for accounts.
const OwnIssuer = "https://here.test"

// NewAccount returns an account with an address in an organization.
func NewAccount(org resource.UID, email string) resource.Account {
	a := resource.Account{UID: org.NewChild(), Email: email, Name: "Ann", CreateTime: Epoch, UpdateTime: Epoch}
	c := a.Local(OwnIssuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	return a
}

// IdentityOf returns the identity of an account.
func IdentityOf(a resource.Account) resource.Identity {
	c := a.Local(OwnIssuer)
	return resource.Identity{
		UID: a.Identity, Name: "ann", EmailUnverified: a.Email, CreateTime: Epoch, UpdateTime: Epoch, LastSeenTime: Epoch,
		Relationship: resource.Relationship{ClaimMatch: &c},
	}
}

// AddAccount inserts an account and its identity.
func AddAccount(t testing.TB, s *People, org resource.UID, email string) resource.Account {
	t.Helper()
	a := NewAccount(org, email)
	testkit.Must(t, s.InsertAccount(t.Context(), a, IdentityOf(a)))
	return a
}

// NewSession returns a session that can be refreshed until ten hours after epoch.
func NewSession(identity resource.UID, id string) resource.Session {
	return resource.Session{
		ID: id, Identity: identity, Email: "i@b.test", Agent: "holdfast/1", Address: "192.0.2.1",
		Act:        &resource.Upstream{Issuer: "https://issuer.test", Subject: "s", Audience: []string{"a"}},
		CreateTime: Epoch, UsedTime: Epoch, ExpireTime: Epoch.Add(10 * time.Hour),
	}
}

// WantVoid checks that exactly these subjects have been revoked.
func WantVoid(t testing.TB, s *IAMStore, subjects ...resource.UID) {
	t.Helper()
	got, err := s.Revocations(t.Context(), Epoch.Add(-time.Hour))
	testkit.Must(t, err)
	want := map[resource.UID]time.Time{}
	for _, u := range subjects {
		want[u] = got[u]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("revocations: %s", diff)
	}
	for u, revoked := range got {
		if revoked.IsZero() {
			t.Errorf("%s was not revoked", u)
		}
	}
}
