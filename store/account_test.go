package store_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

const ownIssuer = "https://here.test"

func newAccount(org resource.UID, email string) resource.Account {
	a := resource.Account{UID: org.NewChild(), Email: email, Name: "Ann", CreateTime: epoch, UpdateTime: epoch}
	c := a.Local(ownIssuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	return a
}

func identityOf(a resource.Account) resource.Identity {
	c := a.Local(ownIssuer)
	return resource.Identity{
		UID: a.Identity, Name: "ann", EmailUnverified: a.Email, CreateTime: epoch, UpdateTime: epoch, LastSeenTime: epoch,
		Relationship: resource.Relationship{ClaimMatch: &c},
	}
}

func addAccount(t *testing.T, s *store.Store, org resource.UID, email string) resource.Account {
	t.Helper()
	a := newAccount(org, email)
	must(t, s.InsertAccount(t.Context(), a, identityOf(a)))
	return a
}
