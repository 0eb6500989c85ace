package scim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestTeamRoleInFlight checks that no write is committed that depended on a role of a team, if the role has ended
// between the decision and the commit: because the directory removed the member or the team, changed its name, or
// deactivated the person, or because somebody deleted the mapping or changed the source of the roles.
func TestTeamRoleInFlight(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		w.byDirectory()
		endings := map[string]func(user, team string, mapping resource.UID){
			"nothing ends it": func(string, string, resource.UID) {},
			"the member is removed": func(user, team string, _ resource.UID) {
				w.want(204, "PATCH /Groups/"+team, `{"Operations":[{"op":"remove","path":"members[value eq \"`+user+`\"]"}]}`)
			},
			"the team is emptied": func(_, team string, _ resource.UID) {
				w.want(204, "PATCH /Groups/"+team, `{"Operations":[{"op":"replace","path":"members","value":[]}]}`)
			},
			"the team is deleted": func(_, team string, _ resource.UID) { w.want(204, "DELETE /Groups/"+team, "") },
			"the team is renamed": func(_, team string, _ resource.UID) {
				w.want(204, "PATCH /Groups/"+team, `{"Operations":[{"op":"replace","path":"displayName","value":"x`+team+`"}]}`)
			},
			"the user is deactivated": func(user, _ string, _ resource.UID) {
				w.want(200, "PATCH /Users/"+user, `{"Operations":[{"op":"replace","path":"active","value":"False"}]}`)
			},
			"the user is deleted": func(user, _ string, _ resource.UID) { w.want(204, "DELETE /Users/"+user, "") },
			"the mapping is deleted": func(_, _ string, mapping resource.UID) {
				testkit.Must(t, w.store.DeleteMapping(context.WithoutCancel(t.Context()), mapping))
			},
		}
		for name, end := range endings {
			t.Run(name, func(t *testing.T) {
				user := w.add(name)
				team := w.addTeam(name, user)
				m := iamtest.AddMapping(t, w.store.IAMStore, w.provider.UID, resource.OwnerRole, name)
				caller := authz.Caller{Identity: w.personOf(name), Issued: time.Now().Add(time.Second)}
				ctx := authz.WithCaller(t.Context(), caller)
				testkit.Must(t, w.checker.Require(ctx, resource.GroupsCreate, w.org.UID))
				end(user, team, m.UID)
				_, err := w.store.InsertGroup(ctx, iamtest.NewGroup(w.org.UID, "made-"+team))
				if ended := name != "nothing ends it"; ended != (err != nil) {
					t.Errorf("the write: %v", err)
				}
				if err != nil && !errors.Is(err, fault.PermissionDenied) && !errors.Is(err, fault.Unauthenticated) {
					t.Errorf("the error: %v", err)
				}
			})
		}
	})
}
