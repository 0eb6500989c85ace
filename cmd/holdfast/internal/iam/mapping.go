package iam

import (
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func groupMappings() noun.Noun {
	return noun.Noun{
		Use: "group-mappings", One: "group mapping",
		About:      "A group mapping gives a role on the organization to the members of a group that an identity provider knows.",
		Example:    "  holdfast iam group-mappings create platform-admins --provider okta --role editor",
		Message:    noun.MessageOf(&iampb.ExternalGroupRoleMapping{}),
		Parent:     identityProviders,
		ParentFlag: "provider", Argument: "external-group-id",
		Fields: []noun.Field{
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` that members get"},
			{Flag: "scope", Path: "scope", Ref: noun.Groups, Help: "`GROUP` they get it on (the organization)"},
		},
		Filters: []noun.Field{
			{Flag: "provider", Path: "identity_provider_uid", Ref: identityProviders, Help: "only mappings of this `IDENTITY-PROVIDER`"},
		},
		Columns: output.Columns("externalGroupId", "roleUid", "uid"),
		Wide:    output.Columns("identityProviderUid", "scope", "createTime"),
	}
}
