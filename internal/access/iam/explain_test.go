package iam_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestExplainMissing checks the reason and the helpful bindings that the owner of an organization and other callers get
// when they ask why an identity cannot delete a folder.
func TestExplainMissing(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		viewer := resource.ManagedRoleUID("viewer")
		cleaner, err := w.CreateRole(w.owner, w.acme.UID, resource.Role{
			Name: "cleaner", Capabilities: resource.CapabilitySet("groups.delete"),
		})
		must(t, err)
		someone, err := w.CreateIdentity(w.owner, w.acme.UID, person("someone", "someone"))
		must(t, err)
		bind := func(group, role resource.UID, start, end time.Time) resource.UID {
			t.Helper()
			b, err := w.CreateBinding(w.owner, group, resource.RoleBinding{
				Identity: someone.UID, Role: role, StartTime: start, ExpireTime: end,
			})
			must(t, err)
			return b.UID
		}
		want := func(ctx context.Context, reason iam.MissingReason, nearest resource.UID, givers int) {
			t.Helper()
			m, err := w.ExplainMissing(ctx, someone.UID, resource.GroupsDelete, folder.UID)
			must(t, err)
			got := resource.UID("")
			if m.Nearest != nil {
				got = m.Nearest.UID
			}
			roleFound := m.Role.UID == cleaner.UID
			if m.Reason != reason || got != nearest || len(m.Givers) != givers || (givers > 0) != roleFound {
				t.Errorf("reason %d, nearest %q, role %q, %d givers; want %d, %q, %d",
					m.Reason, got, m.Role.Name, len(m.Givers), reason, nearest, givers)
			}
		}
		want(w.owner, iam.NoRole, "", 1)
		above := bind(w.acme.UID, viewer, time.Time{}, time.Time{})
		want(w.owner, iam.RoleLacksCapability, above, 1)
		here := bind(folder.UID, viewer, time.Time{}, time.Time{})
		want(w.owner, iam.RoleLacksCapability, here, 1)
		upcoming := bind(w.acme.UID, cleaner.UID, in(time.Hour), time.Time{})
		want(w.owner, iam.RoleNotBegun, upcoming, 1)
		must(t, w.DeleteBinding(w.owner, upcoming))
		over := bind(w.acme.UID, cleaner.UID, time.Time{}, in(10*time.Second)) // this is long enough for a slow machine
		testkit.Until(t, func() bool { return !w.holds(someone.UID, folder.UID) })
		want(w.owner, iam.RoleExpired, over, 1)
		want(w.as(someone.UID), iam.RoleExpired, over, 1) // a viewer sees the givers
		stranger := w.as(resource.NewRoot())
		_, err = w.ExplainMissing(stranger, someone.UID, resource.GroupsDelete, folder.UID)
		if fault.From(err).Code != fault.PermissionDenied {
			t.Errorf("a stranger: %v", err)
		}
		must(t, w.DeleteBinding(w.owner, above))
		must(t, w.DeleteBinding(w.owner, here))
		want(w.as(someone.UID), iam.RoleExpired, over, 0) // the identity sees only its own binding
	})
}

func (w *world) holds(identity, place resource.UID) bool {
	w.t.Helper()
	a, err := w.CheckAccess(w.owner, identity, resource.GroupsDelete, place)
	must(w.t, err)
	return a.Allowed
}
