package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func roles() noun {
	return noun{
		use: "roles", one: "role",
		about:    "Roles are sets of capabilities. The built-in ones can be bound by anyone and changed by no one.",
		example:  "  holdfast iam roles create auditor --parent acme --capability groups.list,identity.list,role_bindings.list",
		service:  serviceOf(iampb.File_holdfast_iam_v2beta1_roles_proto),
		message:  (*iampb.Role)(nil).ProtoReflect().Descriptor(),
		argument: "name",
		fields: []field{
			description("role"),
			{flag: "capability", path: "capabilities", help: "`NAMES` of what its holders may do, with commas or the flag repeated; all of them, also in update"},
		},
		filters: []field{
			{flag: "built-in", path: "uidp.in_root", help: "only the built-in roles"},
		},
		columns: []column{
			{name: "name", path: "name"}, {name: "uid", path: "uid"},
			{name: "can", text: capabilityCount}, {name: "description", path: "description"},
		},
		wide:  columnsOf("capabilities", "createTime", "updateTime"),
		extra: []func(*app) *cobra.Command{(*app).capabilities},
	}
}

func capabilityCount(m protoreflect.Message) string {
	return strconv.Itoa(m.Get(m.Descriptor().Fields().ByName("capabilities")).List().Len())
}

func (a *app) capabilities() *cobra.Command {
	return &cobra.Command{
		Use: "capabilities", Short: "List every capability that a role can have", Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, _ []string) error {
			method := accessMethod("ListCapabilities")
			resp, err := c.call(ctx, method, &accesspb.ListCapabilitiesRequest{}, nil)
			if err != nil {
				return err
			}
			out, err := a.printer(noun{
				use: "capabilities", message: (*accesspb.NamedCapability)(nil).ProtoReflect().Descriptor(), id: "name",
				columns: []column{{name: "name", path: "name"}, {name: "family", path: "family"}, {name: "capability", text: capabilityName}},
			}, true)
			if err != nil {
				return err
			}
			all := resp.Get(resp.Descriptor().Fields().ByName("capabilities")).List()
			for i := range all.Len() {
				if err := out.add(all.Get(i).Message()); err != nil {
					return err
				}
			}
			return out.close()
		}),
	}
}

// capabilityName is a capability as the API has it.
func capabilityName(m protoreflect.Message) string {
	c, ok := m.Interface().(*accesspb.NamedCapability)
	if !ok {
		return ""
	}
	return c.GetCapability().String()
}

// accessMethod is a method of the service that answers who may do what.
func accessMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(accesspb.File_holdfast_access_v1_access_proto).Methods().ByName(name)
}
