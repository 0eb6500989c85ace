package iam

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func accounts() noun.Noun {
	return noun.Noun{
		Use: "accounts", One: "account", Message: noun.MessageOf(&signinpb.Account{}), Form: "ACCOUNT", Locate: findAccount,
		NoDryRun: true,
		Columns: output.Columns("email", "name", output.GroupOf("organization", "uid"), output.Text("factors", factors),
			"used=useTime"),
		Wide: output.Columns("uid", "identityUid", "createTime", "updateTime"),
	}
}

// factors returns the ways in which an account can sign in.
func factors(account *signinpb.Account) string {
	var words []string
	if account.GetHasPassword() {
		words = append(words, "password")
	}
	count := func(n int32, one string) {
		if n == 1 {
			words = append(words, one)
		} else if n > 1 {
			words = append(words, fmt.Sprintf("%d %ss", n, one))
		}
	}
	count(account.GetPasskeys(), "passkey")
	if account.GetTotp() {
		words = append(words, "app")
	}
	count(account.GetRecoveryCodes(), "recovery code")
	return strings.Join(words, ", ")
}

// accountsCommand returns the commands about local accounts.
func accountsCommand(a *noun.App) *cobra.Command {
	cmd := a.Branch("accounts", "Create local accounts, for people without an identity provider",
		listAccounts(a), createAccount(a), accountLink(a), deleteAccounts(a), localAccounts(a, "on", true),
		localAccounts(a, "off", false))
	cmd.Long = "A local account has an email address and a password, passkeys or codes of an authenticator app. Its\n" +
		"holder chooses the password with a link that works once, so that administrators never know it."
	return cmd
}

func listAccounts(a *noun.App) *cobra.Command {
	var p noun.Paging
	var parent string
	cmd := &cobra.Command{
		Use: "list", Short: "List accounts", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &signinpb.ListAccountsRequest{}
			if err := a.Within(ctx, parent, req); err != nil {
				return err
			}
			p.OrderBy = cmp.Or(p.OrderBy, "email")
			return a.PrintAll(ctx, accounts(), req, p)
		}),
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &parent, "parent", noun.Groups(), "only accounts of `GROUP`")
	return cmd
}

func createAccount(a *noun.App) *cobra.Command {
	account := &signinpb.Account{}
	role := []noun.Field{{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to grant on the organization"}}
	cmd := &cobra.Command{
		Use: "create EMAIL", Short: "Create an account, and a link for setting it up",
		Example: "  holdfast iam accounts create ann@example.com --parent acme --role viewer --name 'Ann Example'",
		Args:    cobra.ExactArgs(1),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			parent, err := a.ParentOf(ctx, noun.Noun{}, cmd)
			if err != nil {
				return err
			}
			account.Email = args[0]
			if err := a.Fill(ctx, cmd, role, account); err != nil {
				return err
			}
			req := &signinpb.CreateAccountRequest{Parent: parent, Account: account}
			m, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).CreateAccount, req, "email=EMAIL", "name=--name",
				"role_uid=--role", "parent=--parent")
			if err != nil {
				return err
			}
			noteLink(a, args[0])
			columns := output.Columns("email=account.email", output.Whole("url", "link.url"), "expires=link.expireTime")
			return a.Show(ctx, output.View{Plural: "accounts", ID: "account.uid", Columns: columns}, m)
		}),
	}
	cmd.Flags().StringVar(&account.Name, "name", "", "`NAME` of the person")
	a.RegisterRef(cmd, new(string), "parent", noun.Groups(), "`GROUP` to create it in, an organization")
	a.RegisterFields(cmd, role, noun.MessageOf(account))
	return cmd
}

// noteLink prints who should get a link.
func noteLink(a *noun.App, holder string) {
	a.Note("give this link to %s: it works once, and anyone who has it can sign in", holder)
}

func accountLink(a *noun.App) *cobra.Command {
	var factors bool
	cmd := &cobra.Command{
		Use: "link ACCOUNT", Short: "Create a link for choosing a new password",
		Long: "ACCOUNT is a uid or an email address. The password, passkeys and app stay valid until the link is used.",
	}
	a.About(accounts(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &signinpb.CreateAccountLinkRequest{Uid: uid, ResetFactors: factors}
		m, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).CreateAccountLink, req, "uid=ACCOUNT")
		if err != nil {
			return err
		}
		noteLink(a, "the holder of the account")
		columns := output.Columns(output.Whole("url", "url"), "expireTime")
		return a.Show(ctx, output.View{Plural: "links", ID: "url", Columns: columns}, m)
	})
	cmd.ValidArgsFunction = nil // completion does not list people's addresses
	cmd.Flags().BoolVar(&factors, "reset-factors", false,
		"the link also removes passkeys and the authenticator app")
	return cmd
}

// findAccount returns the UID of the account with an email address.
func findAccount(ctx context.Context, a *noun.App, email string) (string, error) {
	req := &signinpb.ListAccountsRequest{Email: email}
	found, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).ListAccounts, req, "email=ACCOUNT")
	if err != nil {
		return "", err
	}
	switch accounts := found.GetAccounts(); len(accounts) {
	case 0:
		return "", problem.New(problem.ExitNotFound, "there is no account %s", email)
	case 1:
		return accounts[0].GetUid(), nil
	default:
		p := problem.Usage("%s has %d accounts: use the uid of one of these", email, len(accounts))
		for _, account := range accounts {
			p = p.Hint(account.GetUid())
		}
		return "", p
	}
}

func deleteAccounts(a *noun.App) *cobra.Command {
	cmd := a.DeleteCommand(accounts())
	cmd.Short, cmd.ValidArgsFunction = "Delete accounts and end their sessions", nil
	return cmd
}

// localAccounts returns a command that switches the local accounts of an organization on
// or off.
func localAccounts(a *noun.App, use string, on bool) *cobra.Command {
	short := "Allow sign-in with local accounts"
	long := ""
	if !on {
		short = "Disallow sign-in with local accounts"
		long = "Fails unless an owner can sign in with an identity provider."
	}
	cmd := &cobra.Command{Use: use + " ORGANIZATION", Short: short, Long: long}
	return a.About(noun.Groups(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &signinpb.UpdateSignInRulesRequest{Uid: uid, Rules: &signinpb.SignInRules{LocalAccounts: on}}
		_, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).UpdateSignInRules, req, "uid=ORGANIZATION")
		if err == nil {
			a.Note("local accounts of %s are %s", cmd.Flags().Arg(0), use)
		}
		return err
	})
}
