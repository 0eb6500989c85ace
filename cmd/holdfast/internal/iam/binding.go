package iam

import (
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func roleBindings() noun.Noun {
	return noun.Noun{
		Use: "role-bindings", One: "role binding",
		About: "A role binding gives an identity a role on a group and everything below it, from the next request on.\n" +
			"Nobody can give what they do not hold themselves.",
		Example: "  holdfast iam role-bindings create --parent acme/platform --identity acme/platform/ci --role viewer",
		Message: noun.MessageOf(&iampb.RoleBinding{}),
		Fields: []noun.Field{
			{Flag: "identity", Path: "identity_uid", Ref: Identities, Help: "`IDENTITY` that gets the role"},
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to give"},
		},
		Filters: []noun.Field{
			{Flag: "identity", Path: "identity", Ref: Identities, Help: "only bindings of this `IDENTITY`"},
			{Flag: "role", Path: "role", Ref: Roles, Help: "only bindings of this `ROLE`"},
			{Flag: "group", Path: "group", Ref: noun.Groups, Help: "only bindings on this `GROUP` itself"},
		},
		Columns: output.Columns("identity=identity.name", "role=role.name", "group=group.name", "uid"),
		Wide:    bindingUIDs(),
	}
}

func bindingUIDs() []output.Column {
	return output.Columns("identityUid=identity.uid", "roleUid=role.uid", "groupUid=group.uid", "email=identity.email", "createTime")
}
