package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func accounts() noun {
	return noun{
		use: "accounts", one: "account", message: messageOf(&signinpb.Account{}), form: "ACCOUNT", locate: findAccount, noDryRun: true,
		columns: slices.Concat(columnsOf("email", "name", "uid"), []column{{name: "factors", text: factors}}, columnsOf("used=useTime")),
		wide:    columnsOf("identityUid", "createTime", "updateTime"),
	}
}

// factors is what an account can be signed in to with.
func factors(m protoreflect.Message) string {
	account, _ := m.Interface().(*signinpb.Account)
	var all []string
	if account.GetHasPassword() {
		all = append(all, "password")
	}
	count := func(n int32, one string) {
		if n == 1 {
			all = append(all, one)
		} else if n > 1 {
			all = append(all, fmt.Sprintf("%d %ss", n, one))
		}
	}
	count(account.GetPasskeys(), "passkey")
	if account.GetTotp() {
		all = append(all, "app")
	}
	count(account.GetRecoveryCodes(), "recovery code")
	return strings.Join(all, ", ")
}

// accounts is the commands of local accounts.
func (a *app) accounts() *cobra.Command {
	cmd := a.branch("accounts", "Manage accounts of people whom no identity provider knows",
		a.listAccounts(), a.createAccount(), a.accountLink(), a.deleteAccounts(), a.localAccounts("on", true), a.localAccounts("off", false))
	cmd.Long = "A local account is an e-mail address and a password, passkeys or codes from an app. An administrator never learns\n" +
		"the password: a link that works once lets its holder choose one."
	return cmd
}

func (a *app) listAccounts() *cobra.Command {
	var p paging
	var parent string
	cmd := &cobra.Command{
		Use: "list", Short: "List accounts", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			req := &signinpb.ListAccountsRequest{}
			if err := a.within(ctx, parent, req); err != nil {
				return err
			}
			return a.printAll(ctx, accounts(), req, p)
		}),
	}
	p.register(cmd)
	a.registerRef(cmd, &parent, "parent", groups(), "only those of this `GROUP`")
	return cmd
}

func (a *app) createAccount() *cobra.Command {
	account := &signinpb.Account{}
	role := field{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` to give on the organization"}
	cmd := &cobra.Command{
		Use: "create EMAIL", Short: "Create an account, and a link for its holder to begin with",
		Example: "  holdfast iam accounts create ann@example.com --parent acme --role viewer --name 'Ann Example'",
		Args:    cobra.ExactArgs(1),
		RunE: a.ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			parent, err := a.parentOf(ctx, noun{}, cmd)
			if err != nil {
				return err
			}
			account.Email = args[0]
			if _, err := role.apply(ctx, a, cmd.Flags(), account.ProtoReflect(), role.path); err != nil {
				return err
			}
			req := &signinpb.CreateAccountRequest{Parent: parent, Account: account}
			m, err := call(ctx, signinpb.NewSignInServiceClient(a).CreateAccount, req,
				map[string]string{"email": "EMAIL", "name": "--name", "role_uid": "--role", "parent": "--parent"})
			if err != nil {
				return err
			}
			a.noteLink(args[0])
			columns := columnsOf("email=account.email", "uid=account.uid", "url=link.url", "expires=link.expireTime")
			return a.show(view{plural: "accounts", id: "account.uid", columns: columns}, m)
		}),
	}
	cmd.Flags().StringVar(&account.Name, "name", "", "the person's `NAME`")
	a.registerRef(cmd, new(string), "parent", groups(), "`GROUP` the account belongs to: an organization")
	a.registerField(cmd, role, messageOf(account))
	return cmd
}

// noteLink tells the person whom a link is for.
func (a *app) noteLink(holder string) {
	a.note("give this link to %s: it works once, and whoever has it can sign in", holder)
}

func (a *app) accountLink() *cobra.Command {
	var factors bool
	cmd := &cobra.Command{
		Use: "link ACCOUNT", Short: "Make a link with which the holder of an account chooses a new password",
		Long: "The account is given by its uid or its e-mail address. The password, passkeys and app stay good until the link is used.",
	}
	a.about(accounts(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &signinpb.CreateAccountLinkRequest{Uid: uid, ResetFactors: factors}
		m, err := call(ctx, signinpb.NewSignInServiceClient(a).CreateAccountLink, req, map[string]string{"uid": "ACCOUNT"})
		if err != nil {
			return err
		}
		a.noteLink("the holder of the account")
		return a.show(view{plural: "links", id: "url", columns: columnsOf("url", "expireTime")}, m)
	})
	cmd.ValidArgsFunction = nil // people's addresses are not listed
	cmd.Flags().BoolVar(&factors, "reset-factors", false, "the link also takes away their passkeys and app, for when those are lost")
	return cmd
}

// findAccount finds the uid of an account by its address.
func findAccount(ctx context.Context, a *app, email string) (string, error) {
	req := &signinpb.ListAccountsRequest{Email: email}
	found, err := call(ctx, signinpb.NewSignInServiceClient(a).ListAccounts, req, map[string]string{"email": "ACCOUNT"})
	if err != nil {
		return "", err
	}
	switch all := found.GetAccounts(); len(all) {
	case 0:
		return "", newProblem(exitNotFound, "there is no account %s", email)
	case 1:
		return all[0].GetUid(), nil
	default:
		p := usage("%s has %d accounts: give the uid of one", email, len(all))
		for _, account := range all {
			p.hint(account.GetUid())
		}
		return "", p
	}
}

func (a *app) deleteAccounts() *cobra.Command {
	cmd := a.deleteCommand(accounts())
	cmd.Short, cmd.ValidArgsFunction = "Delete accounts, and end their sessions", nil
	return cmd
}

// localAccounts switches the local accounts of an organization on or off.
func (a *app) localAccounts(use string, on bool) *cobra.Command {
	short := "Let people sign in to an organization with local accounts"
	long := ""
	if !on {
		short = "Stop people from signing in to an organization with local accounts"
		long = "Refused unless an owner can still sign in through an identity provider."
	}
	cmd := &cobra.Command{Use: use + " ORGANIZATION", Short: short, Long: long}
	return a.about(groups(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &signinpb.UpdateSignInRulesRequest{Uid: uid, Rules: &signinpb.SignInRules{LocalAccounts: on}}
		_, err := call(ctx, signinpb.NewSignInServiceClient(a).UpdateSignInRules, req, map[string]string{"uid": "ORGANIZATION"})
		if err == nil {
			a.note("local accounts of %s are %s", cmd.Flags().Arg(0), use)
		}
		return err
	})
}
