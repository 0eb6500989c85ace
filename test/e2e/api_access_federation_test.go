package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// federateIn creates one resource of each federated kind in a group: an identity provider, a mapping, an invite and
// an account association. The association is in a new child group.
func (h *hierarchy) federateIn(t *testing.T, group string) {
	t.Helper()
	h.mapped(t, h.idp(t, group, h.name()), h.name())
	h.invite(t, group)
	h.associate(t, h.child(t, group, h.name()))
}

// federatedAccesses returns, by name, the methods for federated resources and for questions about access that act on
// one place.
func (h *hierarchy) federatedAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	group := func(t *testing.T) string { return h.child(t, h.folder, h.name()) }
	idp := func(t *testing.T) string { return h.idp(t, h.folder, h.name()) }
	withToken := func(t *testing.T) string {
		uid := idp(t)
		must[proto.Message](t, h.overGRPC, h.Token, &iampb.GenerateScimTokenRequest{IdentityProviderUid: uid})
		return uid
	}
	mapped := func(t *testing.T) string { return h.mapped(t, idp(t), h.name()) }
	invite := func(t *testing.T) string { return h.invite(t, h.folder) }
	associated := func(t *testing.T) string { return h.associate(t, group(t)) }
	return map[string]access{
		"GetIdentityProvider": {"identity_providers.list", idp, func(uid string) proto.Message {
			return &iampb.GetIdentityProviderRequest{Uid: uid}
		}},
		"CreateIdentityProvider": {"identity_providers.create", folder, func(uid string) proto.Message {
			return &iampb.CreateIdentityProviderRequest{Parent: uid, IdentityProvider: provider(h.name())}
		}},
		"UpdateIdentityProvider": {"identity_providers.update", idp, func(uid string) proto.Message {
			return &iampb.UpdateIdentityProviderRequest{IdentityProvider: &iampb.IdentityProvider{Uid: uid, Name: h.name()}}
		}},
		"DeleteIdentityProvider": {"identity_providers.delete", idp, func(uid string) proto.Message {
			return &iampb.DeleteIdentityProviderRequest{Uid: uid}
		}},
		"GenerateScimToken": {"identity_providers.scim.manage", idp, func(uid string) proto.Message {
			return &iampb.GenerateScimTokenRequest{IdentityProviderUid: uid}
		}},
		"RegenerateScimToken": {"identity_providers.scim.manage", withToken, func(uid string) proto.Message {
			return &iampb.RegenerateScimTokenRequest{IdentityProviderUid: uid, Etag: "1"}
		}},
		"RevokeScimToken": {"identity_providers.scim.manage", withToken, func(uid string) proto.Message {
			return &iampb.RevokeScimTokenRequest{IdentityProviderUid: uid}
		}},
		"SetScimEnabled": {"identity_providers.scim.manage", idp, func(uid string) proto.Message {
			return &iampb.SetScimEnabledRequest{IdentityProviderUid: uid, Etag: "0"}
		}},
		"GetDirectory": {"identity_providers.list", idp, func(uid string) proto.Message {
			return &accesspb.GetDirectoryRequest{Uid: uid}
		}},
		"UpdateDirectory": {"identity_providers.scim.manage", idp, func(uid string) proto.Message {
			return &accesspb.UpdateDirectoryRequest{Directory: &accesspb.Directory{
				Uid: uid, Etag: "0", RoleSource: accesspb.RoleSource_ROLE_SOURCE_TEAMS,
			}}
		}},
		"GetExternalGroupRoleMapping": {"identity_providers.list", mapped, func(uid string) proto.Message {
			return &iampb.GetExternalGroupRoleMappingRequest{Uid: uid}
		}},
		"DeleteExternalGroupRoleMapping": {"identity_providers.delete", mapped, func(uid string) proto.Message {
			return &iampb.DeleteExternalGroupRoleMappingRequest{Uid: uid}
		}},
		"BatchDeleteExternalGroupRoleMappings": {"identity_providers.delete", idp, func(uid string) proto.Message {
			return &iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: uid, Names: []string{uid + "/0123456789abcdef"}}
		}},
		"GetGroupInvite": {"group_invites.list", invite, func(uid string) proto.Message {
			return &iampb.GetGroupInviteRequest{Uid: uid}
		}},
		"CreateGroupInvite": {"group_invites.create", folder, func(uid string) proto.Message {
			return &iampb.CreateGroupInviteRequest{Parent: uid, GroupInvite: invitation()}
		}},
		"UpdateGroupInvite": {"group_invites.create", invite, func(uid string) proto.Message {
			return &iampb.UpdateGroupInviteRequest{
				GroupInvite: &iampb.GroupInvite{Uid: uid, Email: h.name() + "@people.example"},
			}
		}},
		"DeleteGroupInvite": {"group_invites.delete", invite, func(uid string) proto.Message {
			return &iampb.DeleteGroupInviteRequest{Uid: uid}
		}},
		"GetAccountAssociation": {"account_associations.list", associated, func(uid string) proto.Message {
			return &iampb.GetAccountAssociationRequest{Uid: uid}
		}},
		"CreateAccountAssociation": {"account_associations.create", group, func(uid string) proto.Message {
			return &iampb.CreateAccountAssociationRequest{Parent: uid, AccountAssociation: account("x")}
		}},
		"UpdateAccountAssociation": {"account_associations.update", associated, func(uid string) proto.Message {
			return &iampb.UpdateAccountAssociationRequest{
				AccountAssociation: &iampb.AccountAssociation{Uid: uid, Name: h.name()},
			}
		}},
		"DeleteAccountAssociation": {"account_associations.delete", associated, func(uid string) proto.Message {
			return &iampb.DeleteAccountAssociationRequest{Uid: uid}
		}},
		"CheckAccountAssociation": {"account_associations.list", associated, func(uid string) proto.Message {
			return &iampb.CheckAccountAssociationRequest{
				Uid: uid, ProviderType: iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AMAZON,
			}
		}},
		"CheckAccess": {"role_bindings.list", group, func(uid string) proto.Message {
			return &accesspb.CheckAccessRequest{IdentityUid: string(h.Owner), Capability: "groups.list", PlaceUid: uid}
		}},
		"CountChildren": {"groups.list", group, func(uid string) proto.Message {
			return &accesspb.CountChildrenRequest{Uid: uid}
		}},
		"ListAccess": {"role_bindings.list", group, func(uid string) proto.Message {
			return &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: uid}
		}},
	}
}

// mapping describes the method that creates a mapping for an identity provider in the folder.
func (h *hierarchy) mapping() access {
	return access{
		"identity_providers.create", func(t *testing.T) string {
			return h.idp(t, h.folder, h.name())
		}, func(uid string) proto.Message {
			return &iampb.CreateExternalGroupRoleMappingRequest{Parent: uid, ExternalGroupRoleMapping: mapping(h.name())}
		},
	}
}

// maps checks who may create mappings. A mapping grants a role on the organization, so a caller with rights only on
// the folder must be refused.
func (h *hierarchy) maps(t *testing.T, call caller) {
	a := h.mapping()
	h.denies(t, call, a)
	_, st := call(t, h.full["folder"], a.request(a.place(t)))
	checkDenied(t, "with a grant on the folder", st, "groups.list", h.org)
	if _, st := call(t, h.full["org"], a.request(a.place(t))); st != nil {
		t.Errorf("with a grant on the organization: %v", st)
	}
}

// needsBoth calls the methods that promise a role, which need two capabilities. A caller with only one of them must
// be denied, for an existing and for a missing place. A caller with both must not be able to grant a role that has
// more capabilities than the caller.
func (h *hierarchy) needsBoth(t *testing.T, call caller, accesses map[string]access) {
	for name, a := range map[string]access{
		"CreateIdentityProvider":         accesses["CreateIdentityProvider"],
		"UpdateIdentityProvider":         accesses["UpdateIdentityProvider"],
		"CreateGroupInvite":              accesses["CreateGroupInvite"],
		"CreateExternalGroupRoleMapping": h.mapping(),
	} {
		existing, missing := a.place(t), h.folder+"/0123456789abcdef"
		first := h.caller(t, h.org, h.role(t, h.org, h.name(), capabilities(a.capability)...))
		second := h.caller(t, h.org, h.role(t, h.org, h.name(), capabilities("role_bindings.create")...))
		both := h.caller(t, h.org, h.role(t, h.org, h.name(), capabilities(a.capability, "role_bindings.create")...))
		for _, place := range []string{existing, missing} {
			_, st := call(t, first, a.request(place))
			checkDenied(t, name+" with "+a.capability+" alone", st, "role_bindings.create", place)
			_, st = call(t, h.lacking["role_bindings.create"], a.request(place))
			checkDenied(t, name+" with all but role_bindings.create", st, "role_bindings.create", place)
			_, st = call(t, second, a.request(place))
			checkDenied(t, name+" with role_bindings.create alone", st, a.capability, place)
		}
		if out, st := call(t, both, a.request(existing)); st.Code() != codes.PermissionDenied {
			t.Errorf("%s with a role that exceeds the caller's own: %v, %v", name, out, st)
		}
	}
}

// answers checks the answers to questions about access. Every identity may ask about itself and may list the
// capabilities.
func (h *hierarchy) answers(t *testing.T, call caller) {
	person := h.person()
	h.bind(t, h.folder, person, h.viewer())
	bearer := h.mint(t, resource.UID(person), token.Claims{})
	check := func(place string) *accesspb.CheckAccessResponse {
		return must[*accesspb.CheckAccessResponse](t, call, bearer, &accesspb.CheckAccessRequest{
			IdentityUid: person, Capability: "groups.list", PlaceUid: place,
		})
	}
	for place, want := range map[string]bool{
		h.folder: true, h.folder + "/0123456789abcdef": true, h.org: false, h.sibling: false, h.other: false,
	} {
		got := check(place)
		if got.GetAllowed() != want || (len(got.GetGrants()) == 1) != want || got.GetIncomplete() {
			t.Errorf("the caller's own access on %s: %v, want %t", place, got, want)
		}
		verdict := &accesspb.CheckAccessRequest{
			IdentityUid: person, Capability: "groups.list", PlaceUid: place, VerdictOnly: true,
		}
		if got := must[*accesspb.CheckAccessResponse](t, call, bearer, verdict); got.GetAllowed() != want ||
			len(got.GetGrants()) != 0 {
			t.Errorf("verdict without grants on %s: %v, want %t", place, got, want)
		}
		if _, st := call(t, h.full["other"], verdict); place != h.other && st.Code() != codes.PermissionDenied {
			t.Errorf("verdict about an identity of another organization on %s: %v", place, st)
		}
	}
	inside := must[*accesspb.ListAccessResponse](t, call, h.full["folder"], &accesspb.ListAccessRequest{
		Capability: "groups.list", PlaceUid: h.folder, PageSize: 200,
	})
	for _, g := range inside.GetGrants() {
		if g.GetGroup().GetUid() != h.folder {
			t.Errorf("with a grant on the folder the list holds a binding on %s", g.GetGroup().GetUid())
		}
	}
	if len(inside.GetGrants()) == 0 || !inside.GetIncomplete() {
		t.Errorf("with a grant on the folder: %d grants, incomplete %t", len(inside.GetGrants()), inside.GetIncomplete())
	}
	everywhere := must[*accesspb.ListAccessResponse](t, call, h.full["org"], &accesspb.ListAccessRequest{
		Capability: "groups.list", PlaceUid: h.folder,
	})
	if everywhere.GetIncomplete() || everywhere.GetTotalCount() <= inside.GetTotalCount() {
		t.Errorf("with a grant on the organization: %d grants, incomplete %t",
			everywhere.GetTotalCount(), everywhere.GetIncomplete())
	}
	nobody := h.mint(t, resource.UID(h.person()), token.Claims{})
	h.resolves(t, call, nobody)
	must[*accesspb.ListCapabilitiesResponse](t, call, nobody, &accesspb.ListCapabilitiesRequest{})
	must[*accesspb.Version](t, call, nobody, &accesspb.GetVersionRequest{})
}

// resolves looks up paths. A caller must find a path if the caller may get the resource at its end. For other
// callers, a hidden path must give the same error as a path that does not exist.
func (h *hierarchy) resolves(t *testing.T, call caller, nobody string) {
	org := must[*iampb.Group](t, call, h.full["org"], &iampb.GetGroupRequest{Uid: h.org}).GetName()
	for name, tt := range map[string]struct {
		bearer string
		found  bool
	}{
		"on the folder": {h.full["folder"], true}, "on the organization": {h.full["org"], true},
		"on a sibling": {h.full["sibling"], false}, "on another organization": {h.full["other"], false},
		"without groups.list": {h.lacking["groups.list"], false}, "with nothing": {nobody, false},
	} {
		out, hidden := call(t, tt.bearer, &accesspb.ResolvePathRequest{Kind: "groups", Path: org + "/folder"})
		_, missing := call(t, tt.bearer, &accesspb.ResolvePathRequest{Kind: "groups", Path: org + "/nowhere"})
		if missing.Code() != codes.NotFound {
			t.Errorf("missing path with a grant %s: %v", name, missing)
		}
		if got, ok := out.(*accesspb.ResolvePathResponse); tt.found && (!ok || len(got.GetResources()) != 1 ||
			got.GetResources()[0].GetUid() != h.folder || got.GetResources()[0].GetPath() != "/"+org+"/folder") {
			t.Errorf("existing path with a grant %s: %v, %v", name, out, hidden)
		}
		if !tt.found && strings.ReplaceAll(fmt.Sprint(hidden.Proto()), "/folder", "/nowhere") != fmt.Sprint(missing.Proto()) {
			t.Errorf("hidden path with a grant %s: %v, want the same as %v", name, hidden, missing)
		}
	}
}
