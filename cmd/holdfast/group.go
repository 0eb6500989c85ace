package main

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func groups() noun {
	return noun{
		use: "groups", one: "group",
		about: "Groups are the tree that everything else hangs in: organizations at the root, folders below.\n" +
			"A role held on a group is held on all that is below it.",
		example:  "  holdfast iam groups create platform --parent acme --description \"what the platform team runs\"\n  holdfast iam groups create acme --root",
		message:  messageOf(&iampb.Group{}),
		argument: "name",
		orphan:   true,
		fields: []field{
			description("group"),
			{flag: "kind", path: "kind", help: "`KIND` of organization: starter, customer, dev, infra or aws-marketplace", createOnly: true},
		},
		filters: []field{
			{flag: "root", path: "uidp.in_root", help: "only organizations"},
		},
		columns: columnsOf("name", "uid", "description"),
		wide:    columnsOf("kind", "verified", "createTime", "updateTime"),
	}
}

// messageOf returns the definition of a message.
func messageOf(m proto.Message) protoreflect.MessageDescriptor { return m.ProtoReflect().Descriptor() }

func description(one string) field {
	return field{flag: "description", path: "description", help: "what the " + one + " is for, in one line of `TEXT`"}
}
