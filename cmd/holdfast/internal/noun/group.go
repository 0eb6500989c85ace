package noun

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// Groups returns the Noun for groups, which contain all other resources.
func Groups() Noun {
	return Noun{
		Use: "groups", One: "group",
		Short: "Create organizations and folders, which contain everything else",
		About: "Groups form the tree that contains all other resources: organizations at the root, folders below.\n" +
			"A role on a group applies to everything below it.",
		Example: "  holdfast iam groups create platform --parent acme --description \"services of the platform team\"\n" +
			"  holdfast iam groups create acme --root",
		Message:  MessageOf(&iampb.Group{}),
		Kind:     "groups",
		Console:  PageAt("/groups/"),
		Argument: "name",
		orphan:   true,
		Fields: []Field{
			DisplayName("group"),
			Description("group"),
			{Flag: "kind", Help: "`KIND` of organization: starter, customer, dev, infra or aws-marketplace", createOnly: true},
		},
		Filters: []Field{
			{Flag: "root", Path: "uidp.in_root", Help: "only organizations"},
		},
		ByName:  true,
		Columns: output.Columns("name", "displayName", output.PathOf("path", "uid"), "description"),
		Wide:    output.Columns("uid", "kind", "verified", "createTime", "updateTime"),
	}
}

// MessageOf returns the definition of a message.
func MessageOf(m proto.Message) protoreflect.MessageDescriptor { return m.ProtoReflect().Descriptor() }

// DisplayName returns the flag for a display name.
func DisplayName(one string) Field {
	return Field{Flag: "display-name", Help: "`TEXT` that people see instead of the name of the " + one +
		", with capitals and accents"}
}

// Description returns the flag for a description.
func Description(one string) Field {
	return Field{Flag: "description", Help: "description of the " + one + ", one line of `TEXT`"}
}
