package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func (a *app) redeemInvite() *cobra.Command {
	return &cobra.Command{
		Use: "redeem CODE", Short: "Take an invite as whoever is signed in",
		Long: "Whoever has no account yet redeems an invite while signing in: holdfast auth login --invite CODE",
		Args: cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			code, err := a.readSecret(args[0])
			if err != nil {
				return err
			}
			req := &authpb.RegistrationRequest{Code: code}
			m, err := call(ctx, authpb.NewAuthClient(a).Register, req, map[string]string{"code": "CODE"})
			if err != nil {
				return err
			}
			return a.show(view{plural: "sessions", id: "group", columns: columnsOf("identity", "group")}, m)
		}),
	}
}

func (a *app) joins() *cobra.Command {
	cmd := &cobra.Command{
		Use: "joins", Short: "List who has joined through invites", Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			uid, err := a.parentOf(ctx, noun{}, cmd)
			if err != nil {
				return err
			}
			req := &signinpb.ListJoinsRequest{Parent: uid}
			m, err := call(ctx, signinpb.NewSignInServiceClient(a).ListJoins, req, map[string]string{"parent": "--parent"})
			if err != nil {
				return err
			}
			return showAll(a, view{
				plural: "joins", id: "identityUid",
				columns: columnsOf("email", "name", "identityUid", "joinTime"), wide: columnsOf("inviteUid", "groupUid", "roleUid"),
			}, m.GetJoins())
		}),
	}
	a.registerRef(cmd, new(string), "parent", groups(), "`GROUP` whose invites these were, or those of a group below it")
	return cmd
}

func (a *app) testProvider() *cobra.Command {
	cmd := &cobra.Command{
		Use: "test IDENTITY-PROVIDER", Short: "Tell whether an identity provider can sign people in, and why not",
		Long: "Asks the provider what a sign-in would ask it for, and prints an address to try a whole sign-in at: it shows what\n" +
			"the provider says of you and what you would be given, and gives nothing. The exit code is 3 if something is wrong.",
	}
	return a.about(identityProviders(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &signinpb.TestIdentityProviderRequest{Uid: uid}
		result, err := call(ctx, signinpb.NewSignInServiceClient(a).TestIdentityProvider, req, map[string]string{"uid": "IDENTITY-PROVIDER"})
		if err != nil {
			return err
		}
		checks := view{plural: "checks", id: "name", columns: columnsOf("name", "ok", "detail")}
		if err := showAnswer(a, checks, result, result.GetChecks(), func() { a.sayTest(result) }); err != nil {
			return err
		}
		if !result.GetReady() {
			return newProblem(exitNo, "") // that a provider does not work is a result, not an error
		}
		return nil
	})
}

func (a *app) sayTest(result *signinpb.TestIdentityProviderResponse) {
	for _, check := range result.GetChecks() {
		verdict := a.paint(red, "no")
		if check.GetOk() {
			verdict = a.paint(green, "ok")
		}
		fmt.Fprintf(a.out, "%s %s\n", verdict, printable(check.GetName()+": "+check.GetDetail()))
	}
	a.pairs([][2]string{{"redirect", result.GetRedirectUri()}, {"try it at", result.GetTrialUrl()}})
}
