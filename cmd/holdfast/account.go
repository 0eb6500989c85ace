package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

func accountsNoun() noun {
	return noun{
		use: "accounts", one: "account", message: (*signinpb.Account)(nil).ProtoReflect().Descriptor(),
		columns: []column{
			{name: "email", path: "email"}, {name: "name", path: "name"}, {name: "uid", path: "uid"},
			{name: "factors", text: factors}, {name: "used", path: "useTime"},
		},
		wide: columnsOf("identityUid", "createTime", "updateTime"),
	}
}

// factors is what an account can be signed in to with.
func factors(m protoreflect.Message) string {
	account, _ := m.Interface().(*signinpb.Account)
	var all []string
	if account.GetHasPassword() {
		all = append(all, "password")
	}
	if n := account.GetPasskeys(); n == 1 {
		all = append(all, "passkey")
	} else if n > 1 {
		all = append(all, fmt.Sprintf("%d passkeys", n))
	}
	if account.GetTotp() {
		all = append(all, "app")
	}
	if n := account.GetRecoveryCodes(); n == 1 {
		all = append(all, "recovery code")
	} else if n > 1 {
		all = append(all, fmt.Sprintf("%d recovery codes", n))
	}
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
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, _ []string) error {
			req := (&signinpb.ListAccountsRequest{}).ProtoReflect()
			if parent != "" {
				uid, err := c.resolve(ctx, groups(), parent)
				if err != nil {
					return err
				}
				put(req, "uidp.descendants_of", uid)
			}
			return c.printAll(ctx, accountsNoun(), signInMethod("ListAccounts"), req, p)
		}),
	}
	p.register(cmd)
	cmd.Flags().StringVar(&parent, "parent", "", "only those of this `GROUP`")
	must(cmd.RegisterFlagCompletionFunc("parent", a.completeFlag(groups())))
	return cmd
}

func (a *app) createAccount() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "create EMAIL", Short: "Create an account, and a link for its holder to begin with",
		Example: "  holdfast iam accounts create ann@example.com --parent acme --role viewer --name 'Ann Example'",
		Args:    cobra.ExactArgs(1),
	}
	role := field{flag: "role", path: "role_uid", ref: roles, help: "`ROLE` to give on the organization"}
	n := groups()
	cmd.RunE = a.ask(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		parent, err := c.parentOf(ctx, noun{}, cmd)
		if err != nil {
			return err
		}
		account := &signinpb.Account{Email: args[0], Name: name}
		if _, err := role.apply(ctx, c, cmd.Flags(), account.ProtoReflect(), role.path); err != nil {
			return err
		}
		req := &signinpb.CreateAccountRequest{Parent: parent, Account: account}
		m, err := c.call(ctx, signInMethod("CreateAccount"), req,
			map[string]string{"email": "EMAIL", "name": "--name", "role_uid": "--role", "parent": "--parent"})
		if err != nil {
			return err
		}
		return a.showLink(m, "give this link to "+args[0])
	})
	cmd.Flags().StringVar(&name, "name", "", "the person's `NAME`")
	cmd.Flags().String("parent", "", "`"+n.reference()+"` the account belongs to: an organization")
	must(cmd.RegisterFlagCompletionFunc("parent", a.completeFlag(n)))
	a.registerField(cmd, role, (*signinpb.Account)(nil).ProtoReflect().Descriptor())
	return cmd
}

func linkNoun(d protoreflect.MessageDescriptor) noun {
	if d.Name() == "AccountLink" {
		return noun{use: "links", one: "link", id: "url", message: d, columns: columnsOf("url", "expireTime")}
	}
	return noun{
		use: "accounts", one: "account", id: "account.uid", message: d,
		columns: []column{
			{name: "email", path: "account.email"}, {name: "uid", path: "account.uid"},
			{name: "url", path: "link.url"}, {name: "expires", path: "link.expireTime"},
		},
	}
}

// showLink prints an answer that holds a link, and says whom it is for.
func (a *app) showLink(m protoreflect.Message, text string) error {
	a.note("%s: it works once, and whoever has it can sign in", text)
	return a.show(linkNoun(m.Descriptor()), m)
}

func (a *app) accountLink() *cobra.Command {
	var factors bool
	cmd := &cobra.Command{
		Use: "link ACCOUNT", Short: "Make a link with which the holder of an account chooses a new password",
		Long: "The account is given by its uid or its e-mail address. The password, passkeys and app stay good until the link is used.",
		Args: cobra.ExactArgs(1),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			uid, err := c.account(ctx, args[0])
			if err != nil {
				return err
			}
			req := &signinpb.CreateAccountLinkRequest{Uid: uid, ResetFactors: factors}
			m, err := c.call(ctx, signInMethod("CreateAccountLink"), req, map[string]string{"uid": "ACCOUNT"})
			if err != nil {
				return err
			}
			return a.showLink(m, "give this link to the holder of the account")
		}),
	}
	cmd.Flags().BoolVar(&factors, "reset-factors", false, "the link also takes away their passkeys and app, for when those are lost")
	return cmd
}

// account finds an account by its uid or its address.
func (c *client) account(ctx context.Context, text string) (string, error) {
	if isUID(text) {
		return text, nil
	}
	m, err := c.call(ctx, signInMethod("ListAccounts"), &signinpb.ListAccountsRequest{Email: text}, map[string]string{"email": "ACCOUNT"})
	if err != nil {
		return "", err
	}
	found, _ := m.Interface().(*signinpb.ListAccountsResponse)
	switch all := found.GetAccounts(); len(all) {
	case 0:
		return "", &problem{text: "there is no account " + text, code: exitNotFound}
	case 1:
		return all[0].GetUid(), nil
	default:
		p := usage("%s has %d accounts: give the uid of one", text, len(all))
		for _, account := range all {
			p.hints = append(p.hints, account.GetUid())
		}
		return "", p
	}
}

func (a *app) deleteAccounts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete ACCOUNT...", Short: "Delete accounts, and end their sessions", Args: cobra.MinimumNArgs(1),
		RunE: a.ask(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			uids := make([]string, len(args))
			for i, text := range args {
				var err error
				if uids[i], err = c.account(ctx, text); err != nil {
					return err
				}
			}
			if err := a.confirm(ctx, cmd, accountsNoun(), args, uids); err != nil {
				return err
			}
			for _, uid := range uids {
				if _, err := c.call(ctx, signInMethod("DeleteAccount"), &signinpb.DeleteAccountRequest{Uid: uid}, map[string]string{"uid": "ACCOUNT"}); err != nil {
					return err
				}
				a.note("deleted account %s", uid)
			}
			return nil
		}),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
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
	return &cobra.Command{
		Use: use + " ORGANIZATION", Short: short, Long: long, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(groups()),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			uid, err := c.resolve(ctx, groups(), args[0])
			if err != nil {
				return err
			}
			req := &signinpb.UpdateSignInRulesRequest{Uid: uid, Rules: &signinpb.SignInRules{LocalAccounts: on}}
			if _, err := c.call(ctx, signInMethod("UpdateSignInRules"), req, map[string]string{"uid": "ORGANIZATION"}); err != nil {
				return err
			}
			a.note("local accounts of %s are %s", args[0], use)
			return nil
		}),
	}
}
