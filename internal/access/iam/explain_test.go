package iam_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestExplainLack asks why somebody cannot delete groups of a folder, as the owner of the organization.
func TestExplainLack(t *testing.T) {
	each(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		viewer := resource.ManagedRoleUID("viewer")
		cleaner, err := w.CreateRole(w.owner, w.acme.UID, resource.Role{Name: "cleaner", Capabilities: resource.CapabilitySet("groups.delete")})
		must(t, err)
		someone, err := w.CreateIdentity(w.owner, w.acme.UID, person("someone", "someone"))
		must(t, err)
		bind := func(group, role resource.UID, start, end time.Time) resource.UID {
			t.Helper()
			b, err := w.CreateBinding(w.owner, group, resource.RoleBinding{Identity: someone.UID, Role: role, StartTime: start, ExpireTime: end})
			must(t, err)
			return b.UID
		}
		want := func(ctx context.Context, kind iam.LackKind, nearest resource.UID, givers int) {
			t.Helper()
			lack, err := w.ExplainLack(ctx, someone.UID, resource.GroupsDelete, folder.UID)
			must(t, err)
			got := resource.UID("")
			if lack.Nearest != nil {
				got = lack.Nearest.UID
			}
			if lack.Kind != kind || got != nearest || len(lack.Givers) != givers || (givers > 0) != (lack.Role.UID == cleaner.UID) {
				t.Errorf("kind %d, nearest %q, role %q, %d givers; want %d, %q, %d", lack.Kind, got, lack.Role.Name, len(lack.Givers), kind, nearest, givers)
			}
		}
		want(w.owner, iam.LackRole, "", 1)
		above := bind(w.acme.UID, viewer, time.Time{}, time.Time{})
		want(w.owner, iam.LackCapability, above, 1)
		here := bind(folder.UID, viewer, time.Time{}, time.Time{})
		want(w.owner, iam.LackCapability, here, 1)
		upcoming := bind(w.acme.UID, cleaner.UID, in(time.Hour), time.Time{})
		want(w.owner, iam.LackStart, upcoming, 1)
		must(t, w.DeleteBinding(w.owner, upcoming))
		over := bind(w.acme.UID, cleaner.UID, time.Time{}, in(10*time.Second)) // after it is bound, on a slow machine too
		deadline := time.Now().Add(90 * time.Second)
		for w.holds(someone.UID, folder.UID) && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		want(w.owner, iam.LackTime, over, 1)
		want(w.as(someone.UID), iam.LackTime, over, 1) // a viewer sees who could help
		stranger := w.as(resource.NewRoot())
		if _, err := w.ExplainLack(stranger, someone.UID, resource.GroupsDelete, folder.UID); fault.From(err).Code != fault.PermissionDenied {
			t.Errorf("a stranger: %v", err)
		}
		must(t, w.DeleteBinding(w.owner, above))
		must(t, w.DeleteBinding(w.owner, here))
		want(w.as(someone.UID), iam.LackTime, over, 0) // about oneself, and nobody else
	})
}

func (w *world) holds(identity, place resource.UID) bool {
	w.t.Helper()
	a, err := w.CheckAccess(w.owner, identity, resource.GroupsDelete, place)
	must(w.t, err)
	return a.Allowed
}
