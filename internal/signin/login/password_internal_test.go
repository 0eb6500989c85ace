package login

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/password"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestEnumerationByTimeOfAddress: the response waits for the hasher whether or not there is an account with the
// address.
func TestEnumerationByTimeOfAddress(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	g := resource.Group{UID: resource.NewRoot(), Name: "acme"}
	a := resource.Account{UID: g.UID.NewChild(), Email: "known@example.test", Identity: resource.NewRoot()}
	i := resource.Identity{
		UID: a.Identity, Name: "known",
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: "s"}},
	}
	if err := db.CreateOrganization(t.Context(), g, a, i); err != nil {
		t.Fatal(err)
	}
	s := &Service{
		store: iamdb.New(db.DB), accounts: signindb.New(db.DB), people: admission.New(db.DB), tried: newTried(),
		hashes: password.NewHasher(0), // this hasher is always busy
	}
	for _, email := range []string{a.Email, "unknown@example.test", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		in := credentials{Email: email, Password: "x"}
		if _, _, err := s.accountsWithPassword(ctx, in); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q is refused without hashing: %v", email, err)
		}
		cancel()
	}
}

// TestEnumerationByNumber: a password is compared with the same number of hashes, however many accounts an address has.
func TestEnumerationByNumber(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	s := &Service{store: iamdb.New(db.DB), accounts: signindb.New(db.DB), people: admission.New(db.DB),
		hashes: password.NewHasher(1), tried: newTried()}
	hash := s.hashes.Dummy
	s.hashes.Dummy = "malformed" // an error shows that the dummy hash was used
	for n := range maxAccountsTried + 3 {
		_, _, err := s.accountsWithPassword(t.Context(), credentials{Email: "ann@example.test", Password: "x"})
		if full := n >= maxAccountsTried; full != errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%d accounts: %v", n, err)
		}
		g := resource.Group{UID: resource.NewRoot(), Name: fmt.Sprint("org", n)}
		a := resource.Account{
			UID: g.UID.NewChild(), Email: "ann@example.test", Identity: resource.NewRoot(),
			Password: hash,
		}
		i := resource.Identity{UID: a.Identity, Name: "ann", Relationship: resource.Relationship{
			ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: string(a.UID)},
		}}
		if err := db.CreateOrganization(t.Context(), g, a, i); err != nil {
			t.Fatal(err)
		}
	}
}
