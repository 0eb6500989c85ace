package e2e_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestApiGrants checks that a caller who may bind roles cannot grant more than the caller holds, with any method that
// grants.
func TestApiGrants(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.makeThings(t)
		h := &hierarchy{world: w}
		held := []string{
			"groups.list", "roles.list", "roles.create", "roles.update", "identity.list", "identity.update",
			"role_bindings.list", "role_bindings.create", "role_bindings.update",
		}
		binder := h.caller(t, x.folder, w.role(t, x.folder, "binder", capabilities(held...)...))
		viewer, owner := string(resource.ManagedRoleUID("viewer")), string(resource.OwnerRole)
		strong := w.robot(t, x.folder, "strong")
		w.bind(t, x.folder, strong, owner)
		away := w.robot(t, x.folder, "strong elsewhere")
		w.bind(t, w.child(t, "", "elsewhere"), away, string(resource.ManagedRoleUID("apk.pull")))
		robots := w.bind(t, x.folder, h.person(), x.role)
		bind := func(role string) *iampb.RoleBinding {
			return &iampb.RoleBinding{IdentityUid: h.person(), RoleUid: role}
		}
		tests := map[string]struct {
			code codes.Code
			in   func() proto.Message
		}{
			"what they hold": {codes.OK, func() proto.Message {
				return &iampb.CreateRoleBindingRequest{Parent: x.folder, RoleBinding: bind(x.role)}
			}},
			"the viewer": {codes.PermissionDenied, func() proto.Message {
				return &iampb.CreateRoleBindingRequest{Parent: x.folder, RoleBinding: bind(viewer)}
			}},
			"a batch of what they hold": {codes.OK, func() proto.Message {
				return &iampb.BatchCreateRoleBindingsRequest{
					Parent:   x.folder,
					Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: bind(x.role)}, {RoleBinding: bind(x.role)}},
				}
			}},
			"a batch with the owner in it": {codes.PermissionDenied, func() proto.Message {
				return &iampb.BatchCreateRoleBindingsRequest{
					Parent:   x.folder,
					Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: bind(x.role)}, {RoleBinding: bind(owner)}},
				}
			}},
			"a batch of the owner": {codes.PermissionDenied, func() proto.Message {
				return &iampb.BatchCreateRoleBindingsRequest{
					Parent: x.folder, RoleUid: owner, Requests: []*iampb.CreateRoleBindingRequest{{RoleBinding: bind("")}},
				}
			}},
			"a binding changed to the owner": {codes.PermissionDenied, func() proto.Message {
				return &iampb.UpdateRoleBindingRequest{RoleBinding: &iampb.RoleBinding{Uid: robots, RoleUid: owner}}
			}},
			"a binding changed to somebody else": {codes.OK, func() proto.Message {
				return &iampb.UpdateRoleBindingRequest{RoleBinding: &iampb.RoleBinding{Uid: robots, IdentityUid: h.person()}}
			}},
			"a role with more in it": {codes.PermissionDenied, func() proto.Message {
				return &iampb.UpdateRoleRequest{
					Role: &iampb.Role{Uid: x.role, Capabilities: capabilities("groups.list", "groups.delete")},
				}
			}},
			"a role with what they hold": {codes.OK, func() proto.Message {
				return &iampb.UpdateRoleRequest{
					Role: &iampb.Role{Uid: x.role, Capabilities: capabilities("groups.list", "roles.list")},
				}
			}},
			"a new role, which gives nothing": {codes.OK, func() proto.Message {
				return &iampb.CreateRoleRequest{
					Parent: x.folder, Role: &iampb.Role{Name: h.name(), Capabilities: capabilities("groups.delete")},
				}
			}},
			"the name of a strong robot": {codes.OK, func() proto.Message {
				return &iampb.UpdateIdentityRequest{Identity: &iampb.Identity{Uid: strong, Description: h.name()}}
			}},
			"who a strong robot is": {codes.PermissionDenied, func() proto.Message {
				return &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: strong, Relationship: claimMatch("https://mine.example", "me")},
				}
			}},
			"how a strong robot is known": {codes.PermissionDenied, func() proto.Message {
				return &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: strong, Relationship: &iampb.Identity_StaticKeys_{
						StaticKeys: &iampb.Identity_StaticKeys{Issuer: "https://mine.example", Subject: "me", IssuerKeys: publicKeys},
					}},
					UpdateMask: mask("static_keys"),
				}
			}},
			"who a robot is that is strong elsewhere": {codes.PermissionDenied, func() proto.Message {
				return &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: away, Relationship: claimMatch("https://mine.example", "me")},
				}
			}},
			"who a weak robot is": {codes.OK, func() proto.Message {
				return &iampb.UpdateIdentityRequest{
					Identity: &iampb.Identity{Uid: x.identity, Relationship: claimMatch("https://mine.example", h.name())},
				}
			}},
		}
		for name, tt := range tests {
			for protocol, call := range w.protocols() {
				t.Run(name+" over "+protocol, func(t *testing.T) {
					before := w.snapshot(t)
					_, st := call(t, binder, tt.in())
					if st.Code() != tt.code {
						t.Errorf("%v, want code %d", st, tt.code)
					}
					if st != nil && w.snapshot(t) != before {
						t.Error("something changed")
					}
				})
			}
		}
	})
}

// TestApiLastOwner checks that an organization cannot be left without an owner.
func TestApiLastOwner(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		org, owner := string(w.Organization), string(resource.OwnerRole)
		robot := w.robot(t, org, "heir")
		first := must[*iampb.ListRoleBindingsResponse](t, w.overGRPC, w.Token, &iampb.ListRoleBindingsRequest{
			Group: org,
		}).GetRoleBindings()[0].GetUid()
		unmet := func(name string, bearer string, in proto.Message) {
			t.Helper()
			for protocol, call := range w.protocols() {
				if _, st := call(t, bearer, in); st.Code() != codes.FailedPrecondition {
					t.Errorf("%s over %s: %v, want code 9", name, protocol, st)
				}
			}
		}
		viewer := string(resource.ManagedRoleUID("viewer"))
		unmet("delete the binding", w.Token, &iampb.DeleteRoleBindingRequest{Uid: first})
		unmet("change its role", w.Token, &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: first, RoleUid: viewer},
		})
		second := w.bind(t, org, robot, owner)
		heir := w.mint(t, resource.UID(robot), token.Claims{})
		must[proto.Message](t, w.overHTTP, heir, &iampb.DeleteRoleBindingRequest{Uid: first})
		unmet("delete the heir's binding", heir, &iampb.DeleteRoleBindingRequest{Uid: second})
		unmet("delete the heir", heir, &iampb.DeleteIdentityRequest{Uid: robot})
		if _, st := w.overGRPC(t, w.Token, &iampb.GetGroupRequest{Uid: org}); st.Code() != codes.PermissionDenied {
			t.Errorf("a former owner: %v", st)
		}
	})
}

// TestApiRevocation revokes access in several ways, and checks that the next request is denied.
func TestApiRevocation(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		x := w.makeThings(t)
		calls := w.protocols()
		for writes, write := range calls {
			for reads, read := range calls {
				t.Run("written over "+writes+", read over "+reads, func(t *testing.T) {
					w.revokes(t, write, read, w.child(t, x.folder, strings.ToLower(writes+" "+reads)), x)
				})
			}
		}
	})
}

func (w *world) revokes(t *testing.T, write, read caller, folder string, x things) {
	robot := w.robot(t, folder, "robot")
	role := w.role(t, folder, "reader", capabilities("groups.list")...)
	bearer := w.mint(t, resource.UID(robot), token.Claims{})
	expect := func(when string, code codes.Code) {
		t.Helper()
		if _, st := read(t, bearer, &iampb.GetGroupRequest{Uid: folder}); st.Code() != code {
			t.Errorf("%s: %v, want code %d", when, st, code)
		}
	}
	expect("before", codes.PermissionDenied)
	for range 5 {
		b := must[*iampb.RoleBinding](t, write, w.Token, &iampb.CreateRoleBindingRequest{
			Parent: folder, RoleBinding: &iampb.RoleBinding{IdentityUid: robot, RoleUid: role},
		})
		expect("bound", codes.OK)
		must[proto.Message](t, write, w.Token, &iampb.UpdateRoleRequest{
			Role: &iampb.Role{Uid: role, Capabilities: capabilities("roles.list")},
		})
		expect("the role lost it", codes.PermissionDenied)
		must[proto.Message](t, write, w.Token, &iampb.UpdateRoleRequest{
			Role: &iampb.Role{Uid: role, Capabilities: capabilities("groups.list")},
		})
		expect("the role has it again", codes.OK)
		must[proto.Message](t, write, w.Token, &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: b.GetUid(), IdentityUid: x.identity},
		})
		expect("bound to another", codes.PermissionDenied)
		must[proto.Message](t, write, w.Token, &iampb.UpdateRoleBindingRequest{
			RoleBinding: &iampb.RoleBinding{Uid: b.GetUid(), IdentityUid: robot},
		})
		expect("bound again", codes.OK)
		must[proto.Message](t, write, w.Token, &iampb.DeleteRoleBindingRequest{Uid: b.GetUid()})
		expect("unbound", codes.PermissionDenied)
	}
	w.bind(t, folder, robot, role)
	expect("bound for the last time", codes.OK)
	must[proto.Message](t, write, w.Token, &iampb.DeleteIdentityRequest{Uid: robot})
	expect("the identity is gone", codes.Unauthenticated)
}

// TestApiTokens calls methods with narrowed and with invalid tokens, and checks which calls are denied.
func TestApiTokens(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		x := w.makeThings(t)
		key := prepare(t, storetest.SQLite(t), token.Config{Issuer: w.AuthURL}, nil)
		forged, err := key.Mint(t.Context(), token.Claims{Subject: w.Owner, Audience: []string{w.BaseURL}})
		if err != nil {
			t.Fatal(err)
		}
		lists, nothing := resource.CapabilitySet("groups.list"), resource.Capabilities{}
		narrow := func(c token.Claims) string { return w.mint(t, w.Owner, c) }
		folder := []resource.UID{resource.UID(x.folder)}
		get := func(uid string) proto.Message { return &iampb.GetGroupRequest{Uid: uid} }
		create := &iampb.CreateGroupRequest{Parent: x.folder, Group: &iampb.Group{Name: "x"}}
		tests := map[string]struct {
			bearer string
			in     proto.Message
			code   codes.Code
		}{
			"for both audiences": {narrow(token.Claims{Audience: []string{w.RegistryHost, w.BaseURL}}), get(x.org), codes.OK},
			"for the registry":   {w.RegistryToken, get(x.org), codes.Unauthenticated},
			"for nobody we know": {
				narrow(token.Claims{Audience: []string{"https://x.example"}}), get(x.org), codes.Unauthenticated,
			},
			"from a key that is not ours":  {forged, get(x.org), codes.Unauthenticated},
			"narrowed to lists, to list":   {narrow(token.Claims{Caps: &lists}), get(x.org), codes.OK},
			"narrowed to lists, to create": {narrow(token.Claims{Caps: &lists}), create, codes.PermissionDenied},
			"narrowed to no capability":    {narrow(token.Claims{Caps: &nothing}), get(x.org), codes.PermissionDenied},
			"narrowed to a folder, in it":  {narrow(token.Claims{Scopes: folder}), get(x.folder), codes.OK},
			"narrowed to a folder, above":  {narrow(token.Claims{Scopes: folder}), get(x.org), codes.PermissionDenied},
			"narrowed to no place": {
				narrow(token.Claims{Scopes: []resource.UID{}}), get(x.folder), codes.PermissionDenied,
			},
			"narrowed to lists, to bind": {
				narrow(token.Claims{Caps: &lists}),
				&iampb.CreateRoleBindingRequest{
					Parent: x.folder, RoleBinding: &iampb.RoleBinding{IdentityUid: x.identity, RoleUid: string(resource.OwnerRole)},
				},
				codes.PermissionDenied,
			},
			"narrowed, to found": {
				narrow(token.Claims{Scopes: folder}),
				&iampb.CreateGroupRequest{Group: &iampb.Group{Name: "new"}}, codes.PermissionDenied,
			},
		}
		for name, tt := range tests {
			for protocol, call := range w.protocols() {
				t.Run(name+" over "+protocol, func(t *testing.T) {
					if _, st := call(t, tt.bearer, tt.in); st.Code() != tt.code {
						t.Errorf("%v, want code %d", st, tt.code)
					}
				})
			}
		}
		for protocol, call := range w.protocols() {
			t.Run("a narrowed list over "+protocol, func(t *testing.T) {
				uids, total := listed(must[proto.Message](t, call,
					narrow(token.Claims{Scopes: folder}), &iampb.ListGroupsRequest{}))
				if total != 1 || len(uids) != 1 || uids[0] != folder[0] {
					t.Errorf("lists %q, total %d", uids, total)
				}
			})
		}
	})
}

// TestApiTokenExpiry checks that an expired token is refused.
func TestApiTokenExpiry(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := serve(t, storetest.SQLite(t), server.Config{Now: clock.now}, nil)
	bearer := w.mint(t, w.Owner, token.Claims{Life: time.Hour})
	in := &iampb.GetGroupRequest{Uid: string(w.Organization)}
	for protocol, call := range w.protocols() {
		if _, st := call(t, bearer, in); st != nil {
			t.Errorf("over %s: %v", protocol, st)
		}
	}
	clock.advance(time.Hour + time.Second)
	for protocol, call := range w.protocols() {
		if _, st := call(t, bearer, in); st.Code() != codes.Unauthenticated {
			t.Errorf("after an hour over %s: %v", protocol, st)
		}
	}
}
