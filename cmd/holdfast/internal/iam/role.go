package iam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// Roles returns the Noun for roles.
func Roles() noun.Noun {
	return noun.Noun{
		Use: "roles", One: "role",
		Short: "Define roles, which are sets of capabilities",
		About: "Roles are sets of capabilities. Built-in roles can be bound in every organization and cannot be changed.",
		Example: "  holdfast iam roles create auditor --parent acme " +
			"--capability groups.list,identity.list,role_bindings.list",
		Message:  noun.MessageOf(&iampb.Role{}),
		Kind:     "roles",
		Argument: "name",
		Fields: []noun.Field{
			noun.Description("role"),
			{Flag: "capability", Path: "capabilities",
				Help: "`NAMES` of its capabilities, separated by commas; can be repeated; update replaces all of them"},
		},
		Filters: []noun.Field{
			{Flag: "built-in", Path: "uidp.in_root", Help: "only the built-in roles"},
		},
		ByName: true,
		Columns: output.Columns("name", output.PathOf("path", "uid"), output.Text("can", capabilityCount),
			"description"),
		Wide:  output.Columns("uid", "capabilities", "createTime", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{capabilities},
	}
}

func capabilityCount(r *iampb.Role) string { return strconv.Itoa(len(r.GetCapabilities())) }

func capabilities(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "capabilities", Short: "List every capability that a role can have", Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &accesspb.ListCapabilitiesRequest{}
			resp, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).ListCapabilities, req)
			if err != nil {
				return err
			}
			columns := output.Columns("name", "family", output.Text("capability", capabilityName))
			view := output.View{Plural: "capabilities", ID: "name", Columns: columns}
			return noun.ShowAll(ctx, a, view, resp.GetCapabilities())
		}),
	}
}

// capabilityName returns the API's name of a capability.
func capabilityName(c *accesspb.NamedCapability) string { return c.GetCapability().String() }

func roleBindings() noun.Noun {
	return noun.Noun{
		Use: "role-bindings", One: "role binding",
		Short: "Give identities roles in a group",
		About: "A role binding grants an identity a role on a group and everything below it. It takes effect\n" +
			"immediately. You can grant only capabilities that you have.",
		Example: "  holdfast iam role-bindings create --parent acme/platform --identity acme/platform/ci --role viewer\n" +
			"  holdfast iam role-bindings create --parent acme/platform --identity ann --role editor --for 8h \\\n" +
			"    --reason 'incident 7'",
		Message: noun.MessageOf(&iampb.RoleBinding{}),
		Broad:   true,
		Fields: []noun.Field{
			{Flag: "identity", Path: "identity_uid", Ref: Identities, Help: "`IDENTITY` that gets the role"},
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to grant"},
			{Flag: "from", Path: "start_time", Read: setTime("from", "start_time"),
				Help: "a `TIME`, or a duration such as 2h, at which it takes effect; '' for immediately"},
			{Flag: "for", Path: "expire_time", Read: setLength,
				Help: "`DURATION`, such as 8h or 30d, after which it ends"},
			{Flag: "until", Path: "expire_time", Read: setTime("until", "expire_time"),
				Help: "`TIME` at which it ends; '' for no end"},
			{Flag: "reason", Help: "`TEXT` with the reason"},
		},
		Filters: []noun.Field{
			{Flag: "identity", Ref: Identities, Help: "only bindings of this `IDENTITY`"},
			{Flag: "role", Ref: Roles, Help: "only bindings of this `ROLE`"},
			{Flag: "group", Ref: noun.Groups, Help: "only bindings on `GROUP`, not on parent groups or subgroups"},
		},
		Sorted: true,
		Columns: output.Columns(output.Text("identity", holder).InCSV("identity.name"), "role=role.name",
			groupPath((*iampb.RoleBinding).GetGroup), "createTime", output.Text("until", until).InCSV("expireTime")),
		Wide: append(output.Columns("uid", "state", "startTime", "expireTime", "reason"), bindingUIDs()...),
	}
}

// setLength sets the end of a binding from a duration.
func setLength(m protoreflect.Message, texts []string) error {
	d, err := noun.ParseDuration(texts[0])
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not a length of time", texts[0])
	}
	if err == nil {
		noun.Put(m, "expire_time", timestamppb.New(time.Now().Add(d)).ProtoReflect())
	}
	return err
}

// setTime returns a function that sets a time of a binding from the value of a flag. An
// empty value clears the time.
func setTime(flag, path string) func(protoreflect.Message, []string) error {
	return func(m protoreflect.Message, texts []string) error {
		if fd := m.Descriptor().Fields().ByName(protoreflect.Name(path)); m.Has(fd) {
			return errors.New("it cannot be used together with --for")
		}
		t, err := noun.ParseUntil(flag, texts[0])
		if err == nil && t != nil {
			noun.Put(m, path, t.ProtoReflect())
		}
		return err
	}
}

// moment formats a time as tables do.
func moment(t *timestamppb.Timestamp) string { return t.AsTime().Local().Format("2006-01-02 15:04") }

// until returns the end of a binding, or its state if it is not in effect.
func until(b *iampb.RoleBinding) string {
	switch {
	case b.GetState() == iampb.RoleBindingState_ROLE_BINDING_STATE_OVER:
		return "over"
	case b.GetState() == iampb.RoleBindingState_ROLE_BINDING_STATE_UPCOMING:
		return "from " + moment(b.GetStartTime())
	case b.GetState() == iampb.RoleBindingState_ROLE_BINDING_STATE_DEACTIVATED:
		return "deactivated"
	case b.GetExpireTime() != nil:
		return moment(b.GetExpireTime())
	}
	return ""
}

// groupPath returns a column with the path of a group, or its name if the path is
// unknown.
func groupPath[T proto.Message](group func(T) *iampb.RoleBindingGroup) output.Column {
	uids := func(m T) []string { return []string{group(m).GetUid()} }
	return output.Named("group", uids, func(m T, called output.Called) string {
		if path := called(group(m).GetUid()).Path; path != group(m).GetUid() {
			return path
		}
		return cmp.Or(group(m).GetName(), group(m).GetUid())
	}).InCSV("group.name")
}

func bindingUIDs() []output.Column {
	return output.Columns("identityUid=identity.uid", "roleUid=role.uid", "groupUid=group.uid", "email=identity.email")
}
