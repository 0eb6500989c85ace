package login_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestAttackDisabledProvider: a person is at the page of a provider while an administrator disables it. The response of
// the provider signs nobody in, and registers nobody. After the provider is enabled again, a new sign-in succeeds.
func TestAttackDisabledProvider(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		x := open(t, s)
		p := newProvider(t)
		idp := x.keep(t, p)
		set := func(disabled bool) {
			t.Helper()
			must[resource.IdentityProvider](t)(s.UpdateProvider(t.Context(), idp.UID,
				func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
					p.Disabled = disabled
					return nil, nil
				}))
		}
		b := x.browser(t)
		response := p.answerTo(t, b.ask(idp))
		set(true)
		got := query(t, b.get(response).location)
		if got.Get("token") != "" || !strings.Contains(got.Get("error"), "disabled") {
			t.Errorf("the response of a disabled provider gives %v", got)
		}
		if roles := rolesOf(x, resource.UserUID(idp.Realm, "pat")); len(roles) != 0 {
			t.Errorf("a disabled provider gives the roles %q", roles)
		}
		set(false)
		x.browser(t).through(p, idp)
		if roles := rolesOf(x, resource.UserUID(idp.Realm, "pat")); !slices.Equal(roles, []string{"viewer"}) {
			t.Errorf("an enabled provider gives the roles %q", roles)
		}
	})
}
