package e2e_test

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// badFederatedUIDs returns, for every request that contains a UID, requests with invalid UIDs.
func badFederatedUIDs(x things) map[string]badRequest {
	table := map[string]badRequest{}
	for value, uid := range badUIDValues(x) {
		add := func(name, field string, in proto.Message) { table[name+" with "+value] = badRequest{field, in} }
		add("get provider", "uid", &iampb.GetIdentityProviderRequest{Uid: uid})
		add("delete provider", "uid", &iampb.DeleteIdentityProviderRequest{Uid: uid})
		add("update provider", "uid", &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: uid, Name: "x"},
		})
		add("create provider", "parent", &iampb.CreateIdentityProviderRequest{Parent: uid, IdentityProvider: provider("x")})
		add("default role", "default_role", &iampb.CreateIdentityProviderRequest{
			Parent: x.folder, IdentityProvider: roled(uid),
		})
		add("get association", "uid", &iampb.GetAccountAssociationRequest{Uid: uid})
		add("delete association", "uid", &iampb.DeleteAccountAssociationRequest{Uid: uid})
		add("update association", "uid", &iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: uid, Name: "x"},
		})
		add("create association", "parent", &iampb.CreateAccountAssociationRequest{
			Parent: uid, AccountAssociation: account("x"),
		})
		add("check association", "uid", &iampb.CheckAccountAssociationRequest{Uid: uid, ProviderType: 1})
		add("get invite", "uid", &iampb.GetGroupInviteRequest{Uid: uid})
		add("delete invite", "uid", &iampb.DeleteGroupInviteRequest{Uid: uid})
		add("update invite", "uid", &iampb.UpdateGroupInviteRequest{
			GroupInvite: &iampb.GroupInvite{Uid: uid, Email: "a@b.example"},
		})
		add("create invite", "parent", &iampb.CreateGroupInviteRequest{Parent: uid, GroupInvite: invitation()})
		add("promised role", "role_uid", &iampb.CreateGroupInviteRequest{
			Parent: x.folder, GroupInvite: &iampb.GroupInvite{RoleUid: uid, Ttl: invitation().GetTtl()},
		})
		add("get mapping", "uid", &iampb.GetExternalGroupRoleMappingRequest{Uid: uid})
		add("delete mapping", "uid", &iampb.DeleteExternalGroupRoleMappingRequest{Uid: uid})
		add("create mapping", "parent", &iampb.CreateExternalGroupRoleMappingRequest{
			Parent: uid, ExternalGroupRoleMapping: mapping("x"),
		})
		add("mapped role", "role_uid", &iampb.CreateExternalGroupRoleMappingRequest{
			Parent: x.provider, ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "x", RoleUid: uid},
		})
		add("batch", "parent", &iampb.BatchDeleteExternalGroupRoleMappingsRequest{Parent: uid, Names: []string{x.mapping}})
		add("batch of names", "names[1]", &iampb.BatchDeleteExternalGroupRoleMappingsRequest{
			Parent: x.provider, Names: []string{x.mapping, uid},
		})
		add("check identity", "identity_uid", &accesspb.CheckAccessRequest{
			IdentityUid: uid, Capability: "groups.list", PlaceUid: x.folder,
		})
		add("check place", "place_uid", &accesspb.CheckAccessRequest{
			IdentityUid: x.identity, Capability: "groups.list", PlaceUid: uid,
		})
		add("list place", "place_uid", &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: uid})
		// An empty value is valid in the remaining fields.
		if uid == "" {
			continue
		}
		add("mapped scope", "scope", &iampb.CreateExternalGroupRoleMappingRequest{
			Parent:                   x.provider,
			ExternalGroupRoleMapping: &iampb.ExternalGroupRoleMapping{ExternalGroupId: "x", RoleUid: consoleViewer, Scope: uid},
		})
		add("list mappings of provider", "identity_provider_uid", &iampb.ListExternalGroupRoleMappingsRequest{
			IdentityProviderUid: uid,
		})
		addPlaces(table, value, uid, x)
	}
	return table
}

// addPlaces adds list requests whose filter contains an invalid UID.
func addPlaces(table map[string]badRequest, value, uid string, x things) {
	for field, u := range map[string]*commonpb.UIDPFilter{
		"uidp.descendants_of": {DescendantsOf: uid}, "uidp.children_of": {ChildrenOf: uid},
		"uidp.ancestors_of": {AncestorsOf: uid}, "uidp.ids": {Ids: []string{x.org, uid}},
	} {
		table["list providers by "+field+" with "+value] = badRequest{field, &iampb.ListIdentityProvidersRequest{Uidp: u}}
		table["list associations by "+field+" with "+value] = badRequest{
			field, &iampb.ListAccountAssociationsRequest{Uidp: u},
		}
		table["list invites by "+field+" with "+value] = badRequest{field, &iampb.ListGroupInvitesRequest{Uidp: u}}
		table["list mappings by "+field+" with "+value] = badRequest{
			field, &iampb.ListExternalGroupRoleMappingsRequest{Uidp: u},
		}
	}
}

func badFederatedMasks(x things) map[string]badRequest {
	table := map[string]badRequest{}
	for name, p := range badPaths {
		table["provider: "+name] = badRequest{"update_mask", &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: x.provider, Name: "x"}, UpdateMask: mask(p...),
		}}
		table["association: "+name] = badRequest{"update_mask", &iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: x.folder, Name: "x"}, UpdateMask: mask(p...),
		}}
	}
	for _, path := range []string{"configuration", "oidc.nothing", "oidc.issuer.host", "oidc.additional_scopes.0"} {
		table["provider: "+path] = badRequest{"update_mask", &iampb.UpdateIdentityProviderRequest{
			IdentityProvider: &iampb.IdentityProvider{Uid: x.provider}, UpdateMask: mask(path),
		}}
	}
	for _, path := range []string{
		"amazon.nothing", "google.project", "azure.client_ids.app", "github.app_installations.1", "service_bindings",
	} {
		table["association: "+path] = badRequest{"update_mask", &iampb.UpdateAccountAssociationRequest{
			AccountAssociation: &iampb.AccountAssociation{Uid: x.folder}, UpdateMask: mask(path),
		}}
	}
	return table
}

func badFederatedLists(x things) map[string]badRequest {
	table := map[string]badRequest{}
	for name, b := range badPages {
		table["providers: "+name] = badRequest{
			b.field, &iampb.ListIdentityProvidersRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["associations: "+name] = badRequest{
			b.field, &iampb.ListAccountAssociationsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["invites: "+name] = badRequest{
			b.field, &iampb.ListGroupInvitesRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["mappings: "+name] = badRequest{
			b.field,
			&iampb.ListExternalGroupRoleMappingsRequest{PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
		}
		table["access: "+name] = badRequest{b.field, &accesspb.ListAccessRequest{
			Capability: "groups.list", PlaceUid: x.folder, PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order,
		}}
	}
	table["providers: by group"] = badRequest{"order_by", &iampb.ListIdentityProvidersRequest{OrderBy: "group"}}
	table["invites: by name"] = badRequest{"order_by", &iampb.ListGroupInvitesRequest{OrderBy: "name"}}
	table["mappings: by name"] = badRequest{"order_by", &iampb.ListExternalGroupRoleMappingsRequest{OrderBy: "name"}}
	table["access: by name"] = badRequest{
		"order_by", &accesspb.ListAccessRequest{Capability: "groups.list", PlaceUid: x.folder, OrderBy: "name"},
	}
	ids := &commonpb.UIDPFilter{Ids: slices.Repeat([]string{x.org}, 1001)}
	table["providers: too many ids"] = badRequest{"uidp.ids", &iampb.ListIdentityProvidersRequest{Uidp: ids}}
	table["associations: too many ids"] = badRequest{"uidp.ids", &iampb.ListAccountAssociationsRequest{Uidp: ids}}
	table["invites: too many ids"] = badRequest{"uidp.ids", &iampb.ListGroupInvitesRequest{Uidp: ids}}
	table["mappings: too many ids"] = badRequest{"uidp.ids", &iampb.ListExternalGroupRoleMappingsRequest{Uidp: ids}}
	table["nothing but wrong ids"] = badRequest{
		"uidp.ids", &iampb.ListIdentityProvidersRequest{Uidp: &commonpb.UIDPFilter{Ids: slices.Repeat([]string{"x"}, 5000)}},
	}
	for value, text := range badTexts {
		table["providers of name of "+value] = badRequest{"name", &iampb.ListIdentityProvidersRequest{Name: text}}
		table["associations of name of "+value] = badRequest{"name", &iampb.ListAccountAssociationsRequest{Name: text}}
		table["invites of key of "+value] = badRequest{"key_id", &iampb.ListGroupInvitesRequest{KeyId: text}}
	}
	return table
}

func badAccess(x things) map[string]badRequest {
	table := map[string]badRequest{
		"check of nothing": {"identity_uid", &accesspb.CheckAccessRequest{}},
		"list of nothing":  {"capability", &accesspb.ListAccessRequest{}},
	}
	for value, name := range map[string]string{
		"none":            "",
		"a word":          "everything",
		"half a name":     "groups",
		"a family":        "groups.",
		"capitals":        "GROUPS.LIST",
		"no capability":   "UNKNOWN",
		"a number":        "101",
		"a pattern":       "groups.*",
		"two":             "groups.list,groups.create",
		"a space":         "groups.list ",
		"a NUL":           "groups.list\x00",
		"half a constant": "CAP_IAM_GROUPS",
		"an endless name": strings.Repeat("a", 5000),
	} {
		table["check of "+value] = badRequest{
			"capability", &accesspb.CheckAccessRequest{IdentityUid: x.identity, Capability: name, PlaceUid: x.folder},
		}
		table["list of "+value] = badRequest{"capability", &accesspb.ListAccessRequest{Capability: name, PlaceUid: x.folder}}
	}
	return table
}
