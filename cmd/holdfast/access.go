package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// grants is how role bindings are shown that answer a question about place.
func grants(place string) noun {
	return noun{
		use: "grants", one: "grant", message: (*accesspb.Grant)(nil).ProtoReflect().Descriptor(), id: "bindingUid",
		columns: []column{
			{name: "identity", path: "identity.name"}, {name: "role", path: "role.name"}, {name: "group", path: "group.name"},
			{name: "inherited", text: func(m protoreflect.Message) string { return inherited(m, place) }},
			{name: "binding", path: "bindingUid"},
		},
		wide: []column{
			{name: "identityUid", path: "identity.uid"}, {name: "roleUid", path: "role.uid"}, {name: "groupUid", path: "group.uid"},
			{name: "email", path: "identity.email"}, {name: "createTime", path: "createTime"},
		},
	}
}

func inherited(m protoreflect.Message, place string) string {
	if g, ok := m.Interface().(*accesspb.Grant); ok && g.GetGroup().GetUid() == place {
		return "no"
	}
	return "yes"
}

func (a *app) can() *cobra.Command {
	return &cobra.Command{
		Use: "can IDENTITY CAPABILITY PLACE", Short: "Tell whether an identity may do something, and through which binding",
		Long:    "Prints yes or no, and the bindings that give the capability. The exit code is 0 for yes and 3 for no.",
		Example: "  holdfast iam can acme/platform/ci groups.list acme/platform",
		Args:    cobra.ExactArgs(3), ValidArgsFunction: a.completeQuestion(identities, nil, groups),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			identity, err := c.resolve(ctx, identities(), args[0])
			if err != nil {
				return err
			}
			place, err := c.resolve(ctx, groups(), args[2])
			if err != nil {
				return err
			}
			req := &accesspb.CheckAccessRequest{IdentityUid: identity, Capability: args[1], PlaceUid: place}
			m, err := c.call(ctx, accessMethod("CheckAccess"), req, questionArgs)
			if err != nil {
				return err
			}
			return a.answer(m, place)
		}),
	}
}

var questionArgs = map[string]string{"identity_uid": "IDENTITY", "capability": "CAPABILITY", "place_uid": "PLACE"}

// answer prints what a check found. A no is a result, not an error: it has an
// exit code and no message.
func (a *app) answer(m protoreflect.Message, place string) error {
	found, ok := m.Interface().(*accesspb.CheckAccessResponse)
	if !ok {
		return fmt.Errorf("unexpected answer %s", m.Descriptor().Name())
	}
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "", "table", "wide":
		a.sayAnswer(found, place)
	case "json", "yaml":
		if err := a.show(grants(place), m); err != nil {
			return err
		}
	default:
		if err := a.showGrants(found.GetGrants(), place); err != nil {
			return err
		}
	}
	if found.GetIncomplete() {
		a.note("%s", incompleteNote)
	}
	if !found.GetAllowed() {
		return &problem{code: exitNo}
	}
	return nil
}

func (a *app) sayAnswer(found *accesspb.CheckAccessResponse, place string) {
	if !found.GetAllowed() {
		fmt.Fprintln(a.out, a.paint(red, "no"))
		return
	}
	fmt.Fprintln(a.out, a.paint(green, "yes"))
	for _, g := range found.GetGrants() {
		how := "on"
		if g.GetGroup().GetUid() != place {
			how = "inherited from"
		}
		line := fmt.Sprintf("  %s %s %s, by binding %s", g.GetRole().GetName(), how, g.GetGroup().GetName(), g.GetBindingUid())
		fmt.Fprintln(a.out, printable(line))
	}
}

func (a *app) showGrants(all []*accesspb.Grant, place string) error {
	out, err := a.printer(grants(place), true)
	if err != nil {
		return err
	}
	for _, g := range all {
		if err := out.add(g.ProtoReflect()); err != nil {
			return err
		}
	}
	return out.close()
}

func (a *app) whoCan() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "who-can CAPABILITY PLACE", Short: "List who may do something, and through which binding",
		Long:    "Lists every binding that gives the capability at the place. Whoever has several is there several times.",
		Example: "  holdfast iam who-can groups.delete acme/platform",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeQuestion(nil, groups),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			place, err := c.resolve(ctx, groups(), args[1])
			if err != nil {
				return err
			}
			req := &accesspb.ListAccessRequest{Capability: args[0], PlaceUid: place}
			return c.printAll(ctx, grants(place), accessMethod("ListAccess"), req.ProtoReflect(), p)
		}),
	}
	p.register(cmd)
	return cmd
}
