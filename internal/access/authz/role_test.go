package authz_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func managed() map[string]resource.Capabilities {
	all := map[string]resource.Capabilities{}
	for _, r := range authz.ManagedRoles() {
		all[r.Name] = r.Capabilities
	}
	return all
}

func TestManagedRolesHaveTheirSizes(t *testing.T) {
	want := map[string]int{
		"console_viewer": 45, "viewer": 51, "editor": 62, "owner": 143,
		"registry.pull": 10, "registry.push": 20, "registry.editor": 15, "registry.repo_admin": 15,
		"registry.pull_token_creator": 15, "apk.pull": 3, "apk.push": 5,
		"advisories.viewer": 1, "advisories.creator": 3, "advisories.approver": 4, "advisories.admin": 5,
	}
	got := map[string]int{}
	for name, caps := range managed() {
		got[name] = len(caps.All())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestManagedRolesContainOneAnother(t *testing.T) {
	roles := managed()
	for _, tt := range []struct {
		small, big string
		within     bool
	}{
		{"registry.pull", "viewer", true},
		{"registry.editor", "editor", true},
		{"registry.push", "owner", true},
		{"registry.push", "editor", false},
		{"apk.push", "owner", true},
		{"advisories.viewer", "console_viewer", true},
		{"advisories.admin", "owner", true},
		{"registry.pull_token_creator", "owner", true},
	} {
		if got := roles[tt.small].Without(roles[tt.big]) == (resource.Capabilities{}); got != tt.within {
			t.Errorf("%s within %s: %v, want %v", tt.small, tt.big, got, tt.within)
		}
	}
}

func TestManagedRolesAreValidAndNotInternal(t *testing.T) {
	internal := resource.CapabilitySet("internal", "repo.internal.admin", "registry.deployments.update")
	for _, r := range authz.ManagedRoles() {
		if err := r.Validate(); err != nil || !r.UID.IsRoot() || r.Capabilities.Intersects(internal) {
			t.Errorf(
				"%s: valid: %v, managed: %v, internal: %v", r.Name, err, r.UID.IsRoot(),
				r.Capabilities.Intersects(internal),
			)
		}
	}
}
