package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// authMethod is a method of the service that tells people who they are.
func authMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(authpb.File_holdfast_auth_auth_proto).Methods().ByName(name)
}

func (a *app) redeemInvite() *cobra.Command {
	return &cobra.Command{
		Use: "redeem CODE", Short: "Take an invite as whoever is signed in",
		Long: "Whoever has no account yet redeems an invite while signing in: holdfast auth login --invite CODE",
		Args: cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			code, err := readSecret(a, args[0])
			if err != nil {
				return err
			}
			c, err := a.client(ctx)
			if err != nil {
				return err
			}
			m, err := c.call(ctx, authMethod("Register"), &authpb.RegistrationRequest{Code: code}, map[string]string{"code": "CODE"})
			if err != nil {
				return err
			}
			return a.show(noun{
				use: "sessions", one: "session", id: "group", message: m.Descriptor(), columns: columnsOf("identity", "group"),
			}, m)
		}),
	}
}

// readSecret takes - as standard input: what is on a command line shows in the
// list of processes.
func readSecret(a *app, text string) (string, error) {
	if text == "-" {
		return readText(a.in, text)
	}
	return text, nil
}

func (a *app) joins() *cobra.Command {
	var parent string
	cmd := &cobra.Command{
		Use: "joins", Short: "List who has joined through invites", Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
			uid, err := c.parentOf(ctx, noun{}, cmd)
			if err != nil {
				return err
			}
			m, err := c.call(ctx, signInMethod("ListJoins"), &signinpb.ListJoinsRequest{Parent: uid}, map[string]string{"parent": "--parent"})
			if err != nil {
				return err
			}
			return a.showAll(noun{
				use: "joins", one: "join", id: "identityUid", message: (*signinpb.Join)(nil).ProtoReflect().Descriptor(),
				columns: columnsOf("email", "name", "identityUid", "joinTime"), wide: columnsOf("inviteUid", "groupUid", "roleUid"),
			}, m, "joins")
		}),
	}
	cmd.Flags().StringVar(&parent, "parent", "", "`GROUP` whose invites these were, or those of a group below it")
	must(cmd.RegisterFlagCompletionFunc("parent", a.completeFlag(groups())))
	return cmd
}

func (a *app) testProvider() *cobra.Command {
	return &cobra.Command{
		Use: "test IDENTITY-PROVIDER", Short: "Tell whether an identity provider can sign people in, and why not",
		Long: "Asks the provider what a sign-in would ask it for, and prints an address to try a whole sign-in at: it shows what\n" +
			"the provider says of you and what you would be given, and gives nothing. The exit code is 3 if something is wrong.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(identityProviders()),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			uid, err := c.resolve(ctx, identityProviders(), args[0])
			if err != nil {
				return err
			}
			req := &signinpb.TestIdentityProviderRequest{Uid: uid}
			m, err := c.call(ctx, signInMethod("TestIdentityProvider"), req, map[string]string{"uid": "IDENTITY-PROVIDER"})
			if err != nil {
				return err
			}
			return a.showTest(m)
		}),
	}
}

// showTest prints the outcome of a test. That a provider does not work is a
// result, not an error.
func (a *app) showTest(m protoreflect.Message) error {
	result, ok := m.Interface().(*signinpb.TestIdentityProviderResponse)
	if !ok {
		return fmt.Errorf("unexpected answer %s", m.Descriptor().Name())
	}
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "", "table", "wide":
		for _, check := range result.GetChecks() {
			verdict := a.paint(red, "no")
			if check.GetOk() {
				verdict = a.paint(green, "ok")
			}
			fmt.Fprintf(a.out, "%s %s\n", verdict, printable(check.GetName()+": "+check.GetDetail()))
		}
		a.printPairs([][2]string{{"redirect", result.GetRedirectUri()}, {"try it at", result.GetTrialUrl()}})
	case "json", "yaml":
		err = a.show(noun{use: "tests", one: "test", message: m.Descriptor()}, m)
	default:
		checks := noun{
			use: "checks", one: "check", id: "name", message: (*signinpb.ProviderCheck)(nil).ProtoReflect().Descriptor(),
			columns: columnsOf("name", "ok", "detail"),
		}
		err = a.showAll(checks, m, "checks")
	}
	if err == nil && !result.GetReady() {
		return &problem{code: exitNo}
	}
	return err
}
