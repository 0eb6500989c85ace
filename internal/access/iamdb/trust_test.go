package iamdb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// arrival returns the sign-in of a person with a provider.
func arrival(p resource.IdentityProvider, subject string) resource.SignIn {
	return resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: subject, Realm: p.Realm, Voucher: p.Voucher(), Name: subject, UpdateRoles: true,
		Register: true,
	}
}

func arrive(t *testing.T, s *iamtest.Store, p resource.IdentityProvider, subject string) resource.Identity {
	t.Helper()
	l, err := s.SignIn(t.Context(), arrival(p, subject))
	testkit.Must(t, err)
	return l.Identity
}

// TestPeople checks that the provider determines which identity a person gets.
func TestPeople(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		a, b := iamtest.AddGroup(t, s.IAMStore, "", "a"), iamtest.AddGroup(t, s.IAMStore, "", "b")
		pa := iamtest.AddProvider(t, s.IAMStore, a.UID, iamtest.AddRole(t, s.IAMStore, a.UID, "r").UID, "p")
		pb := iamtest.AddProvider(t, s.IAMStore, b.UID, iamtest.AddRole(t, s.IAMStore, b.UID, "r").UID, "p")
		ofA, ofB := arrive(t, s, pa, "ann"), arrive(t, s, pb, "ann")
		if ofA.UID == ofB.UID || ofA.Provider != pa.UID || ofB.Provider != pb.UID {
			t.Fatalf("one subject of one issuer is %s with one provider, and %s with another", ofA.UID, ofB.UID)
		}
		if again := arrive(t, s, pa, "ann"); again.UID != ofA.UID {
			t.Errorf("the second time she is %s", again.UID)
		}
		n := iamtest.NewSession(ofA.UID, "one")
		n.Voucher = pa.Voucher()
		testkit.Must(t, s.StartSession(t.Context(), n, []byte("r1"), iamtest.Epoch.Add(time.Hour)))

		changedA, err := s.UpdateProvider(t.Context(), pa.UID,
			iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
				p.OIDC.ClientID = "other"
				return nil
			}))
		testkit.Must(t, err)
		iamtest.WantVoid(t, s.IAMStore, resource.VoucherSubject(pa.Voucher()), resource.SessionSubject("one"))
		if _, err := s.Session(t.Context(), "one"); !errors.Is(err, fault.NotFound) {
			t.Errorf("a session that was begun before the client changed: %v", err)
		}
		n.ID = "late"
		if err := s.StartSession(t.Context(), n, []byte("r2"), iamtest.Epoch.Add(time.Hour)); !errors.Is(err, fault.Aborted) {
			t.Errorf("a session of before, begun after: %v", err)
		}
		if _, err := s.SignIn(t.Context(), arrival(pa, "ann")); !errors.Is(err, fault.Aborted) {
			t.Errorf("an arrival of before, finished after: %v", err)
		}
		if anew := arrive(t, s, changedA, "ann"); anew.UID == ofA.UID {
			t.Error("whoever the new client knows is still who the old one knew")
		}

		kept := arrive(t, s, pb, "kept")
		changedB, err := s.UpdateProvider(t.Context(), pb.UID,
			func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
				p.OIDC.Issuer = "https://new.test"
				return func(uid resource.UID) bool { return uid == kept.UID }, nil
			})
		testkit.Must(t, err)
		if same := arrive(t, s, changedB, "kept"); same.UID != kept.UID || same.Relationship.Issuer() != "https://new.test" {
			t.Errorf("who was kept is %s of %s now", same.UID, same.Relationship.Issuer())
		}
		if other := arrive(t, s, changedB, "ann"); other.UID == ofB.UID {
			t.Error("who was not kept is still who they were")
		}
	})
}

// TestTrustedPeople checks that people at a provider that the operator trusts
// are identified by issuer and subject, and that a sub and an oid with the same
// value are different people.
func TestTrustedPeople(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r").UID
		p, object := iamtest.AddProvider(t, s.IAMStore, org.UID, r, "p"), iamtest.NewProvider(org.UID, r, "oid")
		object.OIDC.CorrelationRule = resource.CorrelationObjectID
		testkit.Must(t, s.InsertProvider(t.Context(), object))
		before := arrive(t, s, p, "ann")
		trust := func(uid resource.UID) resource.IdentityProvider {
			p, err := s.UpdateProvider(t.Context(), uid,
				func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
					p.Trusted = true
					return func(resource.UID) bool { return true }, nil
				})
			testkit.Must(t, err)
			return p
		}
		p, object = trust(p.UID), trust(object.UID)
		if same := arrive(t, s, p, "ann"); same.UID != before.UID || !same.OfInstallation() {
			t.Errorf("she was %s and is %s", before.UID, same.UID)
		}
		if bob := arrive(t, s, p, "bob"); bob.UID != resource.UserUID(p.OIDC.Issuer, "bob") {
			t.Errorf("a newcomer is %s", bob.UID)
		}
		if other := arrive(t, s, object, "ann"); other.UID == before.UID {
			t.Error("an oid that is spelled like her sub is her")
		}
	})
}
