package main

import iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"

func groupMappings() noun {
	return noun{
		use: "group-mappings", one: "group mapping",
		about:      "A group mapping gives a role on the organization to the members of a group that an identity provider knows.",
		example:    "  holdfast iam group-mappings create platform-admins --provider okta --role editor",
		message:    messageOf(&iampb.ExternalGroupRoleMapping{}),
		parent:     identityProviders,
		parentFlag: "provider", argument: "external-group-id",
		fields: []field{
			{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` that members get"},
			{flag: "scope", path: "scope", ref: groups, help: "`GROUP` they get it on (the organization)"},
		},
		filters: []field{
			{flag: "provider", path: "identity_provider_uid", ref: identityProviders, help: "only mappings of this `IDENTITY-PROVIDER`"},
		},
		columns: columnsOf("externalGroupId", "roleUid", "uid"),
		wide:    columnsOf("identityProviderUid", "scope", "createTime"),
	}
}
