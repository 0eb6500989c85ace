package iam_test

import (
	"context"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// provide creates a provider of the issuer https://login.example in a group.
func (w *world) provide(
	as context.Context, group resource.UID, name string, rule resource.CorrelationRule,
) resource.IdentityProvider {
	w.t.Helper()
	p, err := w.CreateProvider(as, group, provider(func(p *resource.IdentityProvider) {
		p.Name, p.OIDC.CorrelationRule = name, rule
	}))
	must(w.t, err)
	return p
}

// TestLookupIsOfTheCallersHome checks that the result of a lookup by issuer and subject depends on the caller's home
// group. Another organization can make its provider visible to the caller, but this does not change the result.
func TestLookupIsOfTheCallersHome(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		deep := w.provide(w.owner, folder.UID, "deep", resource.CorrelationUnspecified)
		theirs := w.provide(w.rival, w.other.UID, "theirs", resource.CorrelationUnspecified)
		byObject := w.provide(w.owner, w.acme.UID, "a by object id", resource.CorrelationObjectID)
		worker, atHome := w.worker(w.acme.UID, "groups.list", "identity_providers.list")
		_, err := w.CreateBinding(
			w.rival, w.other.UID, resource.RoleBinding{Identity: worker, Role: resource.OwnerRole},
		)
		if err == nil {
			t.Fatal("a workload became an owner elsewhere")
		}
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: worker, Role: viewer})
		must(t, err)
		look := func(as context.Context, want, unwanted resource.UID) {
			t.Helper()
			if got, err := w.LookupIdentity(as, "https://login.example", "alice", ""); err != nil || got != want ||
				got == unwanted {
				t.Errorf("lookup = %s, %v, want %s", got, err, want)
			}
		}
		ofInstallation := resource.UserUID("https://login.example", "alice")
		look(atHome, ofInstallation, resource.UserUID(theirs.Realm, "alice"))
		look(w.owner, ofInstallation, resource.UserUID(deep.Realm, "alice"))
		look(atHome, ofInstallation, resource.UserUID(byObject.Realm, "alice"))
		// The result changes with a provider of the caller's organization, and with a provider that the call names.
		own := w.provide(w.owner, w.acme.UID, "own", resource.CorrelationSubject)
		look(atHome, resource.UserUID(own.Realm, "alice"), "")
		vouched := authz.WithCaller(
			t.Context(), authz.Caller{Identity: resource.UserUID(deep.Realm, "me"), Voucher: deep.Voucher()},
		)
		look(vouched, resource.UserUID(deep.Realm, "alice"), "")
		named, err := w.LookupIdentity(w.owner, "https://login.example", "alice", deep.UID)
		if err != nil || named != resource.UserUID(deep.Realm, "alice") {
			t.Errorf("lookup with a provider = %s, %v", named, err)
		}
	})
}

// arrive signs a person in with a provider.
func (w *world) arrive(p resource.IdentityProvider, subject string) resource.Identity {
	w.t.Helper()
	l, err := w.store.SignIn(w.t.Context(), resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: subject, Realm: p.Realm, Voucher: p.Voucher(), Trusted: p.Trusted,
		UpdateRoles: true, Register: true,
	})
	must(w.t, err)
	return l.Identity
}

// TestPeopleOfTheInstallationAreNotKept changes the issuer of a provider that the operator trusts. The people who
// signed in with the provider belong to the installation, so they cannot remain identities of the provider.
func TestPeopleOfTheInstallationAreNotKept(t *testing.T) {
	elsewhere := func(p *resource.IdentityProvider) error {
		p.OIDC.Issuer, p.OIDC.PKCE = "https://evil.example", true
		return nil
	}
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		theirs := w.provide(w.rival, w.other.UID, "theirs", resource.CorrelationUnspecified)
		trusted, err := w.TrustProvider(t.Context(), theirs.UID, true)
		must(t, err)
		alice := w.arrive(trusted, "alice")
		moved, err := w.UpdateProvider(w.rival, theirs.UID, true, elsewhere)
		must(t, err)
		if evil := w.arrive(moved, "alice"); evil.UID == alice.UID {
			t.Error("a provider that believes another issuer vouches for a person of the installation")
		}
		if got, err := w.LookupIdentity(w.owner, "https://login.example", "alice", ""); err != nil ||
			got != alice.UID {
			t.Errorf("lookup = %s, %v, want alice", got, err)
		}
		// The people of a provider that the operator does not trust can remain the same identities.
		own := w.provide(w.owner, w.acme.UID, "own", resource.CorrelationUnspecified)
		bob := w.arrive(own, "bob")
		own, err = w.UpdateProvider(w.owner, own.UID, true, elsewhere)
		must(t, err)
		if again := w.arrive(own, "bob"); again.UID != bob.UID {
			t.Error("a person who was kept is somebody else")
		}
	})
}

// TestUIDOfSomebodyWhoLeft revokes the operator's trust in a provider, so that its
// people leave the installation. They keep their UIDs. A person who signs in to the
// installation with the same issuer and subject afterwards gets another UID.
func TestUIDOfSomebodyWhoLeft(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		theirs := w.provide(w.rival, w.other.UID, "theirs", resource.CorrelationUnspecified)
		theirs, err := w.TrustProvider(t.Context(), theirs.UID, true)
		must(t, err)
		alice := w.arrive(theirs, "alice")
		theirs, err = w.TrustProvider(t.Context(), theirs.UID, false)
		must(t, err)
		if again := w.arrive(theirs, "alice"); again.UID != alice.UID {
			t.Error("a person of a provider that is no longer trusted is somebody else")
		}
		looked, err := w.LookupIdentity(w.owner, "https://login.example", "alice", "")
		if err != nil || looked == alice.UID {
			t.Errorf("lookup = %s, %v, which a provider of another organization vouches for", looked, err)
		}
		own := w.provide(w.owner, w.acme.UID, "own", resource.CorrelationUnspecified)
		own, err = w.TrustProvider(t.Context(), own.UID, true)
		must(t, err)
		if came := w.arrive(own, "alice"); came.UID != looked {
			t.Errorf("alice came as %s and was looked up as %s", came.UID, looked)
		}
	})
}
