package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// grants is how the role bindings are shown that give a capability on a group.
func grants(group string) noun {
	inherited := func(m protoreflect.Message) string {
		if m.Interface().(*accesspb.Grant).GetGroup().GetUid() == group {
			return "no"
		}
		return "yes"
	}
	return noun{
		use: "grants", one: "grant", message: messageOf(&accesspb.Grant{}), id: "bindingUid",
		columns: slices.Concat(columnsOf("identity=identity.name", "role=role.name", "group=group.name"),
			[]column{{name: "inherited", text: inherited}}, columnsOf("binding=bindingUid")),
		wide: bindingUIDs(),
	}
}

func (a *app) can() *cobra.Command {
	return &cobra.Command{
		Use: "can IDENTITY CAPABILITY PLACE", Short: "Tell whether an identity may do something, and through which binding",
		Long:    "Prints yes or no, and the bindings that give the capability. The exit code is 0 for yes and 3 for no.",
		Example: "  holdfast iam can acme/platform/ci groups.list acme/platform",
		Args:    cobra.ExactArgs(3), ValidArgsFunction: a.completeQuestion(identities, nil, groups),
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			identity, err := a.resolve(ctx, identities(), args[0])
			if err != nil {
				return err
			}
			group, err := a.resolve(ctx, groups(), args[2])
			if err != nil {
				return err
			}
			req := &accesspb.CheckAccessRequest{IdentityUid: identity, Capability: args[1], PlaceUid: group}
			found, err := call(ctx, accesspb.NewAccessServiceClient(a).CheckAccess, req,
				map[string]string{"identity_uid": "IDENTITY", "capability": "CAPABILITY", "place_uid": "PLACE"})
			if err != nil {
				return err
			}
			say := func() { a.sayAccess(found, group) }
			if err := showAnswer(a, grants(group).view(), found, found.GetGrants(), say); err != nil {
				return err
			}
			if found.GetIncomplete() {
				a.note("%s", incompleteNote)
			}
			if !found.GetAllowed() {
				return newProblem(exitNo, "") // a result: it has an exit code and no message
			}
			return nil
		}),
	}
}

func (a *app) sayAccess(found *accesspb.CheckAccessResponse, group string) {
	if !found.GetAllowed() {
		fmt.Fprintln(a.out, a.paint(red, "no"))
		return
	}
	fmt.Fprintln(a.out, a.paint(green, "yes"))
	for _, g := range found.GetGrants() {
		how := "on"
		if g.GetGroup().GetUid() != group {
			how = "inherited from"
		}
		line := fmt.Sprintf("  %s %s %s, by binding %s", g.GetRole().GetName(), how, g.GetGroup().GetName(), g.GetBindingUid())
		fmt.Fprintln(a.out, printable(line))
	}
}

func (a *app) whoCan() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "who-can CAPABILITY PLACE", Short: "List who may do something, and through which binding",
		Long:    "Lists every binding that gives the capability at the place. Whoever has several is there several times.",
		Example: "  holdfast iam who-can groups.delete acme/platform",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeQuestion(nil, groups),
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			group, err := a.resolve(ctx, groups(), args[1])
			if err != nil {
				return err
			}
			req := &accesspb.ListAccessRequest{Capability: args[0], PlaceUid: group}
			return a.printAll(ctx, grants(group), req, p)
		}),
	}
	p.register(cmd)
	return cmd
}
