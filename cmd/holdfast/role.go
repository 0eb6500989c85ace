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
		message:  messageOf(&iampb.Role{}),
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
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &accesspb.ListCapabilitiesRequest{}
			resp, err := call(ctx, accesspb.NewAccessServiceClient(a).ListCapabilities, req, nil)
			if err != nil {
				return err
			}
			columns := append(columnsOf("name", "family"), column{name: "capability", text: capabilityName})
			return showAll(a, view{plural: "capabilities", id: "name", columns: columns}, resp.GetCapabilities())
		}),
	}
}

// capabilityName is the name that a capability has in the API.
func capabilityName(m protoreflect.Message) string {
	return m.Interface().(*accesspb.NamedCapability).GetCapability().String()
}
