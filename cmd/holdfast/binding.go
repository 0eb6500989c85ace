package main

import iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"

func roleBindings() noun {
	return noun{
		use: "role-bindings", one: "role binding",
		about: "A role binding gives an identity a role on a group and everything below it, from the next request on.\n" +
			"Nobody can give what they do not hold themselves.",
		example: "  holdfast iam role-bindings create --parent acme/platform --identity acme/platform/ci --role viewer",
		service: serviceOf(iampb.File_holdfast_iam_v2beta1_role_bindings_proto),
		message: (*iampb.RoleBinding)(nil).ProtoReflect().Descriptor(),
		fields: []field{
			{flag: "identity", path: "identity_uid", ref: identities, help: "`IDENTITY` that gets the role"},
			{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` to give"},
		},
		filters: []field{
			{flag: "identity", path: "identity", ref: identities, help: "only bindings of this `IDENTITY`"},
			{flag: "role", path: "role", ref: roles, help: "only bindings of this `ROLE`"},
			{flag: "group", path: "group", ref: groups, help: "only bindings on this `GROUP` itself"},
		},
		columns: []column{
			{name: "identity", path: "identity.name"}, {name: "role", path: "role.name"},
			{name: "group", path: "group.name"}, {name: "uid", path: "uid"},
		},
		wide: []column{
			{name: "identityUid", path: "identity.uid"}, {name: "roleUid", path: "role.uid"}, {name: "groupUid", path: "group.uid"},
			{name: "email", path: "identity.email"}, {name: "createTime", path: "createTime"},
		},
	}
}
