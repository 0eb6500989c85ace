package main

import iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"

func roleBindings() noun {
	return noun{
		use: "role-bindings", one: "role binding",
		about: "A role binding gives an identity a role on a group and everything below it, from the next request on.\n" +
			"Nobody can give what they do not hold themselves.",
		example: "  holdfast iam role-bindings create --parent acme/platform --identity acme/platform/ci --role viewer",
		message: messageOf(&iampb.RoleBinding{}),
		fields: []field{
			{flag: "identity", path: "identity_uid", ref: identities, help: "`IDENTITY` that gets the role"},
			{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` to give"},
		},
		filters: []field{
			{flag: "identity", path: "identity", ref: identities, help: "only bindings of this `IDENTITY`"},
			{flag: "role", path: "role", ref: roles, help: "only bindings of this `ROLE`"},
			{flag: "group", path: "group", ref: groups, help: "only bindings on this `GROUP` itself"},
		},
		columns: columnsOf("identity=identity.name", "role=role.name", "group=group.name", "uid"),
		wide:    bindingUIDs(),
	}
}

func bindingUIDs() []column {
	return columnsOf("identityUid=identity.uid", "roleUid=role.uid", "groupUid=group.uid", "email=identity.email", "createTime")
}
