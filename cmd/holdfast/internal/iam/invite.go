package iam

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func invites() noun.Noun {
	return noun.Noun{
		Use: "invites", One: "invite",
		About: "An invite grants a role on a group to anyone who redeems its code. The code is shown only once, when the\n" +
			"invite is created.",
		Example: "  holdfast iam invites create --parent acme/platform --role viewer --ttl 7d --email ann@example.com --single-use",
		Message: noun.MessageOf(&iampb.GroupInvite{}),
		Fields: []noun.Field{
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to grant"},
			{Flag: "ttl", Help: "`DURATION` for which the code is valid, such as 12h or 7d"},
			{Flag: "email", Help: "only a person with this verified email `ADDRESS` can use the code"},
			{Flag: "single-use", Help: "delete the invite after it is used once"},
		},
		Filters: []noun.Field{
			{Flag: "key-id", Help: "only the invite whose code has key `ID`"},
		},
		Columns: output.Columns("uid", "role=role.name", "email", "expires=expirationTime"),
		Wide:    output.Columns("singleUse", "keyId", "createTime"),
		Created: output.Columns("code"),
		Extra:   []func(*noun.App) *cobra.Command{redeemInvite, joins},
	}
}

func redeemInvite(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "redeem CODE", Short: "Redeem an invite for the signed-in identity",
		Long: "To redeem an invite without an account, sign in with it: holdfast auth login --invite CODE",
		Args: cobra.ExactArgs(1),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			code, err := a.ReadSecret(args[0])
			if err != nil {
				return err
			}
			req := &authpb.RegistrationRequest{Code: code}
			m, err := signin.Call(ctx, authpb.NewAuthClient(a).Register, req, "code=CODE")
			if err != nil {
				return err
			}
			return a.Show(output.View{Plural: "sessions", ID: "group", Columns: output.Columns("identity", "group")}, m)
		}),
	}
}

func joins(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "joins", Short: "List the people who joined through invites", Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			uid, err := a.ParentOf(ctx, noun.Noun{}, cmd)
			if err != nil {
				return err
			}
			req := &signinpb.ListJoinsRequest{Parent: uid}
			m, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).ListJoins, req, "parent=--parent")
			if err != nil {
				return err
			}
			return noun.ShowAll(a, output.View{
				Plural: "joins", ID: "identityUid",
				Columns: output.Columns("email", "name", "identityUid", "joinTime"),
				Wide:    output.Columns("inviteUid", "groupUid", "roleUid"),
			}, m.GetJoins())
		}),
	}
	a.RegisterRef(cmd, new(string), "parent", noun.Groups(),
		"only invites to `GROUP` and groups below it")
	return cmd
}
