package scim_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestConflictingClaims checks which roles a person has who is in a team of the directory, and whose claims name
// another group: only the roles from the source that the provider uses, whatever the claims are.
func TestConflictingClaims(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		other := w.replica()
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.ManagedRoleUID("editor"), "Crew")
		iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.OwnerRole, "Admins")
		w.byDirectory()
		w.addTeam("Crew", w.add("ben"))
		signIn := func() {
			t.Helper()
			_, err := admission.New(w.store.DB).SignIn(t.Context(), resource.SignIn{
				Issuer: w.provider.OIDC.Issuer, Subject: "x-ben", Realm: w.provider.Realm, Voucher: w.provider.Voucher(),
				Groups: []string{"Admins"}, UpdateRoles: true,
			})
			testkit.Must(t, err)
		}
		check := func(when string, crew, admins bool) {
			t.Helper()
			testkit.Must(t, other.EnsureCurrent(t.Context()))
			if got := other.Holds(w.personOf("ben"), resource.RepoCreate, w.org.UID); got != crew && !admins {
				t.Errorf("%s: the role of the team: %t", when, got)
			}
			if got := other.Holds(w.personOf("ben"), resource.RoleBindingsCreate, w.org.UID); got != admins {
				t.Errorf("%s: the role of the claim: %t", when, got)
			}
		}
		update := func(on bool) { testkit.Must(t, w.update(scim.Settings{RolesFromTeams: &on})) }
		signIn()
		check("roles from teams", true, false)
		update(false)
		check("roles from claims, before a sign-in", false, false)
		signIn()
		check("roles from claims", false, true)
		update(true)
		check("roles from teams again", true, false)
	})
}
