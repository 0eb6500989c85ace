package authz_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// The UIDs of two organizations. In the first one, dev and deva are siblings whose
// UIDs have a common prefix, and team is below dev.
const (
	org   resource.UID = "1111111111111111111111111111111111111111"
	dev                = org + "/aaaaaaaaaaaaaaa0"
	deva               = org + "/aaaaaaaaaaaaaaa1"
	team               = dev + "/bbbbbbbbbbbbbbbb"
	other resource.UID = "2222222222222222222222222222222222222222"

	ann resource.UID = "cccccccccccccccccccccccccccccccccccccccc"
	bob resource.UID = "dddddddddddddddddddddddddddddddddddddddd"
)

var viewer, owner, pull = resource.ManagedRoleUID("viewer"), resource.OwnerRole,
	resource.ManagedRoleUID("registry.pull")

// furnished returns a checker over s with the groups above, in which Bob owns
// both organizations.
func furnished(t *testing.T, s *storetest.Store) *authz.Checker {
	t.Helper()
	if err := s.SetManagedRoles(t.Context(), authz.ManagedRoles()); err != nil {
		t.Fatal(err)
	}
	c, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]resource.UID{"one": org, "two": other} {
		insert(t, s, name, uid, resource.RoleBinding{UID: uid.NewChild(), Identity: bob, Role: owner})
	}
	insert(t, s, "dev", dev)
	insert(t, s, "deva", deva)
	insert(t, s, "team", team)
	return c
}

func insert(t *testing.T, s *storetest.Store, name string, uid resource.UID, with ...resource.RoleBinding) {
	t.Helper()
	now := time.Now()
	g := resource.Group{UID: uid, Name: name, CreateTime: now, UpdateTime: now}
	if _, err := s.InsertGroup(t.Context(), g, with...); err != nil {
		t.Fatal(err)
	}
}

func bind(t *testing.T, s *storetest.Store, identity, role, group resource.UID) resource.UID {
	t.Helper()
	b := resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: role, CreateTime: time.Now()}
	if _, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b}); err != nil {
		t.Fatal(err)
	}
	return b.UID
}

func TestRequire(t *testing.T) {
	list, pullCaps := resource.GroupsList, managed()["registry.pull"]
	nothing := resource.Capabilities{}
	tests := map[string]struct {
		caller authz.Caller
		want   resource.Capability
		place  resource.UID
		err    error
	}{
		"on the group of the binding":     {authz.Caller{Identity: ann}, list, dev, nil},
		"below it":                        {authz.Caller{Identity: ann}, list, team, nil},
		"on what does not exist below it": {authz.Caller{Identity: ann}, list, team.NewChild(), nil},
		"above it":                        {authz.Caller{Identity: ann}, list, org, fault.PermissionDenied},
		"on a sibling":                    {authz.Caller{Identity: ann}, list, deva, fault.PermissionDenied},
		"on another organization":         {authz.Caller{Identity: ann}, list, other, fault.PermissionDenied},
		"under the same segment elsewhere": {
			authz.Caller{Identity: ann}, list, other + dev[len(org):], fault.PermissionDenied,
		},
		"on nothing":                   {authz.Caller{Identity: ann}, list, "", fault.PermissionDenied},
		"what the role does not allow": {authz.Caller{Identity: ann}, resource.GroupsDelete, dev, fault.PermissionDenied},
		"by a stranger":                {authz.Caller{Identity: other}, list, dev, fault.PermissionDenied},
		"by nobody":                    {authz.Caller{}, list, dev, fault.PermissionDenied},
		"two bindings, the upper one":  {authz.Caller{Identity: ann}, resource.GroupsCreate, team, nil},
		"narrowed to it":               {authz.Caller{Identity: ann, Caps: &pullCaps}, list, dev, nil},
		"narrowed to something else": {
			authz.Caller{Identity: ann, Caps: &pullCaps}, resource.RolesList, dev, fault.PermissionDenied,
		},
		"narrowed to what is not held": {
			authz.Caller{Identity: other, Caps: &pullCaps}, list, dev, fault.PermissionDenied,
		},
		"narrowed to nothing": {authz.Caller{Identity: ann, Caps: &nothing}, list, dev, fault.PermissionDenied},
		"in scope":            {authz.Caller{Identity: ann, Scopes: []resource.UID{dev}}, list, dev, nil},
		"in one of the scopes": {
			authz.Caller{Identity: ann, Scopes: []resource.UID{other, team}}, list, team, nil,
		},
		"in a scope above the binding": {authz.Caller{Identity: ann, Scopes: []resource.UID{org}}, list, team, nil},
		"out of scope": {
			authz.Caller{Identity: ann, Scopes: []resource.UID{team}}, list, dev, fault.PermissionDenied,
		},
		"in scope, but not held": {
			authz.Caller{Identity: ann, Scopes: []resource.UID{org}}, list, org, fault.PermissionDenied,
		},
		"with no scopes left": {
			authz.Caller{Identity: ann, Scopes: []resource.UID{}}, list, dev, fault.PermissionDenied,
		},
	}
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		bind(t, s, ann, viewer, dev)
		bind(t, s, ann, resource.ManagedRoleUID("registry.push"), dev)
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				if err := c.Require(authz.WithCaller(t.Context(), tt.caller), tt.want, tt.place); !errors.Is(err, tt.err) {
					t.Fatalf("error = %v, want %v", err, tt.err)
				}
			})
		}
		if err := c.Require(t.Context(), list, dev); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("without a caller: error = %v, want %v", err, fault.Unauthenticated)
		}
	})
}

func TestRequireAllNamesTheFirstMissing(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		bind(t, s, ann, viewer, org)
		bind(t, s, ann, resource.ManagedRoleUID("registry.push"), dev)
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: ann})
		if err := c.RequireAll(ctx, resource.CapabilitySet("roles.list", "tag.delete"), team); err != nil {
			t.Errorf("held by two bindings: %v", err)
		}
		err := c.RequireAll(
			ctx, resource.CapabilitySet("roles.list", "tag.delete", "roles.delete", "identity.delete"), team,
		)
		want := &fault.Error{
			Code: fault.PermissionDenied, Message: "Permission denied: roles.delete on " + string(team),
			Metadata: map[string]string{"capability": "roles.delete", "scope": string(team)},
		}
		if diff := cmp.Diff(want, err); diff != "" {
			t.Error(diff)
		}
		var unknown resource.Capabilities
		unknown.Add(255)
		if err := c.RequireAll(ctx, unknown, team); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("what this version does not know: error = %v, want %v", err, fault.PermissionDenied)
		}
		if err := c.RequireAll(ctx, resource.Capabilities{}, other); err != nil {
			t.Errorf("nothing is required: %v", err)
		}
	})
}

func TestReach(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		for _, group := range []resource.UID{team, deva, dev} {
			bind(t, s, ann, viewer, group)
		}
		tests := map[string]struct {
			caller authz.Caller
			want   []resource.UID
		}{
			"nothing within another": {authz.Caller{Identity: ann}, []resource.UID{dev, deva}},
			"an owner":               {authz.Caller{Identity: bob}, []resource.UID{org, other}},
			"a stranger":             {authz.Caller{Identity: other}, nil},
			"cut to the scopes": {
				authz.Caller{Identity: bob, Scopes: []resource.UID{team, other, dev}}, []resource.UID{dev, other},
			},
			"scope above the bindings":  {authz.Caller{Identity: ann, Scopes: []resource.UID{org}}, []resource.UID{dev, deva}},
			"scopes that are elsewhere": {authz.Caller{Identity: ann, Scopes: []resource.UID{other}}, nil},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				ctx := authz.WithCaller(t.Context(), tt.caller)
				if got, err := c.Reach(ctx, resource.GroupsList); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("Reach = %v, %v, want %v", got, err, tt.want)
				}
				if err := c.RequireAnywhere(ctx, resource.GroupsList); (err == nil) != (len(tt.want) > 0) {
					t.Errorf("RequireAnywhere = %v, but reach is %v", err, tt.want)
				}
			})
		}
		err := c.RequireAnywhere(authz.WithCaller(t.Context(), authz.Caller{Identity: ann}), resource.GroupsCreate)
		if err == nil || err.Error() != "Permission denied: groups.create on any group" {
			t.Errorf("RequireAnywhere = %v", err)
		}
	})
}

func TestOwned(t *testing.T) {
	pullCaps := managed()["registry.pull"]
	tests := map[string]struct {
		caller authz.Caller
		want   bool
	}{
		"an owner":                         {authz.Caller{Identity: bob}, true},
		"the owner of a folder":            {authz.Caller{Identity: ann}, false},
		"a stranger":                       {authz.Caller{Identity: other}, false},
		"an owner with a narrow token":     {authz.Caller{Identity: bob, Caps: &pullCaps}, false},
		"an owner scoped to a folder":      {authz.Caller{Identity: bob, Scopes: []resource.UID{dev}}, false},
		"an owner scoped to what is owned": {authz.Caller{Identity: bob, Scopes: []resource.UID{other}}, true},
	}
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		bind(t, s, ann, owner, dev)
		bind(t, s, ann, viewer, org)
		for name, tt := range tests {
			if got, err := c.Owned(authz.WithCaller(t.Context(), tt.caller)); err != nil || len(got) > 0 != tt.want {
				t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
			}
		}
		if _, err := c.Owned(t.Context()); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("nobody: error = %v, want %v", err, fault.Unauthenticated)
		}
	})
}

func TestGrantsOf(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		bind(t, s, ann, pull, team)
		bind(t, s, ann, viewer, dev)
		want := []authz.Grant{
			{Group: dev, Role: viewer, Capabilities: managed()["viewer"]},
			{Group: team, Role: pull, Capabilities: managed()["registry.pull"]},
		}
		if diff := cmp.Diff(want, c.GrantsOf(ann)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestChangesCountAtTheNextCheck(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: ann})
		holds := func(step string, want bool) {
			t.Helper()
			if err := c.Require(ctx, resource.GroupsList, team); (err == nil) != want {
				t.Errorf("%s: error = %v, want held: %v", step, err, want)
			}
		}
		holds("before", false)
		uid := bind(t, s, ann, viewer, dev)
		holds("bound", true)
		if err := s.DeleteBinding(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		holds("unbound", false)

		role := resource.Role{UID: org.NewChild(), Name: "mine", Capabilities: resource.CapabilitySet("roles.list")}
		if err := s.InsertRole(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		uid = bind(t, s, ann, role.UID, org)
		holds("bound to a role that does not allow it", false)
		set := func(name string) {
			t.Helper()
			if _, err := store.Edit(t.Context(), role.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
				r.Capabilities = resource.CapabilitySet(name)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		set("groups.list")
		holds("the role allows it", true)
		set("roles.list")
		holds("the role no longer allows it", false)
		toViewer := func(b *resource.RoleBinding) error { b.Role = viewer; return nil }
		if _, err := s.UpdateBinding(t.Context(), uid, toViewer); err != nil {
			t.Fatal(err)
		}
		holds("the binding is to another role", true)
	})
}

func TestDeletedIdentities(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := furnished(t, s)
		now := time.Now()
		robot := resource.Identity{UID: dev.NewChild(), Name: "robot", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.example", Subject: "robot"},
			}}
		if err := s.InsertIdentity(t.Context(), robot); err != nil {
			t.Fatal(err)
		}
		bind(t, s, robot.UID, viewer, dev)
		void := func(c *authz.Checker, identity resource.UID, issued time.Time) bool {
			return c.Revoked(authz.Caller{Identity: identity, Issued: issued}) != ""
		}
		if void(c, robot.UID, now) {
			t.Error("revoked before it is deleted")
		}
		s.Now = func() time.Time { return now }
		if err := s.DeleteIdentity(t.Context(), robot.UID); err != nil {
			t.Fatal(err)
		}
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: robot.UID})
		if err := c.Require(ctx, resource.GroupsList, dev); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("error = %v, want %v", err, fault.PermissionDenied)
		}
		again, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]*authz.Checker{"at once": c, "after a restart": again} {
			if !void(c, robot.UID, now.Truncate(time.Second)) || !void(c, robot.UID, now.Add(-time.Hour)) {
				t.Errorf("%s: tokens made before are good", name)
			}
			if void(c, robot.UID, now.Truncate(time.Second).Add(time.Second)) || void(c, ann, now) {
				t.Errorf("%s: tokens made later, or of others, are void", name)
			}
		}
	})
}
