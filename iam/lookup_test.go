package iam_test

import (
	"context"
	"testing"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

// provide makes a provider of the issuer https://login.example in a group.
func (w *world) provide(as context.Context, group resource.UID, name string, rule resource.CorrelationRule) resource.IdentityProvider {
	w.t.Helper()
	p, err := w.CreateProvider(as, group, provider(func(p *resource.IdentityProvider) { p.Name, p.OIDC.CorrelationRule = name, rule }))
	must(w.t, err)
	return p
}

// TestLookupIsOfTheCallersHome asks for a person by issuer and subject alone. Who
// that is depends on where the caller comes from: others, who can make the caller
// see a provider of theirs, cannot put somebody of theirs in that person's place.
func TestLookupIsOfTheCallersHome(t *testing.T) {
	each(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		deep := w.provide(w.owner, folder.UID, "deep", resource.CorrelationUnspecified)
		theirs := w.provide(w.rival, w.other.UID, "theirs", resource.CorrelationUnspecified)
		byObject := w.provide(w.owner, w.acme.UID, "a by object id", resource.CorrelationObjectID)
		worker, atHome := w.worker(w.acme.UID, "groups.list", "identity_providers.list")
		_, err := w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: worker, Role: resource.OwnerRole})
		if err == nil {
			t.Fatal("a workload became an owner elsewhere")
		}
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: worker, Role: viewer})
		must(t, err)
		look := func(as context.Context, want, unwanted resource.UID) {
			t.Helper()
			if got, err := w.LookupIdentity(as, "https://login.example", "alice", ""); err != nil || got != want || got == unwanted {
				t.Errorf("lookup = %s, %v, want %s", got, err, want)
			}
		}
		ofInstallation := resource.UserUID("https://login.example", "alice")
		look(atHome, ofInstallation, resource.UserUID(theirs.Realm, "alice"))
		look(w.owner, ofInstallation, resource.UserUID(deep.Realm, "alice"))
		look(atHome, ofInstallation, resource.UserUID(byObject.Realm, "alice"))
		// The honest counterpart: the provider of the caller's organization speaks
		// for it, and so does one that is named.
		own := w.provide(w.owner, w.acme.UID, "own", resource.CorrelationSubject)
		look(atHome, resource.UserUID(own.Realm, "alice"), "")
		vouched := authz.WithCaller(t.Context(), authz.Caller{Identity: resource.UserUID(deep.Realm, "me"), Voucher: deep.Voucher()})
		look(vouched, resource.UserUID(deep.Realm, "alice"), "")
		named, err := w.LookupIdentity(w.owner, "https://login.example", "alice", deep.UID)
		if err != nil || named != resource.UserUID(deep.Realm, "alice") {
			t.Errorf("lookup with a provider = %s, %v", named, err)
		}
	})
}
