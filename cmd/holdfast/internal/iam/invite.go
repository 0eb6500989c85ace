package iam

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// validFor is how long the code of an invite is valid unless --ttl says otherwise.
const validFor = 7 * 24 * time.Hour

func invites() noun.Noun {
	return noun.Noun{
		Use: "invites", One: "invite",
		Short: "Invite people to a group with a link",
		About: "An invite grants a role on a group to anyone who redeems its code. The code is shown only once, when the\n" +
			"invite is created. It works once, unless the invite is created with --single-use=false.",
		Example: "  holdfast iam invites create --parent acme/platform --role viewer --ttl 7d " +
			"--email ann@example.com\n" +
			"  holdfast iam invites create --parent acme/platform --role viewer --ttl 1d --single-use=false",
		Message: noun.MessageOf(&iampb.GroupInvite{}),
		Fields: []noun.Field{
			{Flag: "role", Path: "role_uid", Ref: Roles, Help: "`ROLE` to grant"},
			{Flag: "ttl", Help: "`DURATION` for which the code is valid, such as 12h; unless given, 7d"},
			{Flag: "email", Help: "only a person with this verified email `ADDRESS` can use the code"},
			{Flag: "role-until", Path: "expire_time", Read: setTime("role-until", "expire_time"),
				Help: "a `TIME`, or a duration such as 30d, at which the granted role ends"},
			{Flag: "reason", Help: "`TEXT` with the reason for the role"},
			{Flag: "single-use", Help: "delete the invite after it is used once; create does so unless --single-use=false"},
		},
		Defaults: func(m protoreflect.Message) {
			noun.Put(m, "single_use", true)
			noun.Put(m, "ttl", durationpb.New(validFor).ProtoReflect())
		},
		Filters: []noun.Field{
			{Flag: "key-id", Help: "only the invite whose code has key `ID`"},
		},
		Columns:  output.Columns("email", "role=role.name", output.GroupOf("group", "uid"), "expires=expirationTime"),
		Wide:     output.Columns("uid", "singleUse", "keyId", "createTime"),
		Created:  output.Columns(output.Whole("code", "code")),
		Announce: announceInvite,
		Extra:    []func(*noun.App) *cobra.Command{redeemInvite, joins},
	}
}

// announceInvite prints a new invite: first the link, then who can use it. With --mail it
// prints a message to send instead.
func announceInvite(a *noun.App, cmd *cobra.Command) func(context.Context, protoreflect.Message) error {
	mail := cmd.Flags().Bool("mail", false, "print a message to send to the person, with the link")
	return func(ctx context.Context, m protoreflect.Message) error {
		i := m.Interface().(*iampb.GroupInvite)
		group, err := invitedTo(ctx, a, cmd, i)
		if err != nil {
			return err
		}
		issuer, err := a.Issuer()
		if err != nil {
			return err
		}
		link := issuer + "/join?code=" + url.QueryEscape(i.GetCode())
		if *mail {
			return draftMail(a, i, group, link)
		}
		whom, times := "anyone who has the link", "any number of times"
		if i.GetEmail() != "" {
			whom = i.GetEmail() + ", and nobody else"
		}
		if i.GetSingleUse() {
			times = "once"
		}
		a.Pairs([][2]string{
			{"link", link}, {"for", whom}, {"role", i.GetRole().GetName() + " on " + group},
			{"until", a.When(i.GetExpirationTime().AsTime())}, {"works", times}, {"code", i.GetCode()},
			{"uid", i.GetUid()},
		})
		a.Note("the link is not shown again; --mail drafts a message with it")
		return nil
	}
}

// invitedTo returns the name of an invite's group: its path if the caller gave the path,
// and otherwise its name.
func invitedTo(ctx context.Context, a *noun.App, cmd *cobra.Command, i *iampb.GroupInvite) (string, error) {
	organization, err := a.Value("organization")
	if err != nil {
		return "", err
	}
	text := cmp.Or(cmd.Flags().Lookup("parent").Value.String(), organization.Text)
	if !settings.IsUID(text) {
		return strings.TrimPrefix(text, "/"), nil
	}
	g, err := a.Get(ctx, noun.Groups(), noun.ParentUID(i.GetUid()))
	if err != nil {
		return text, nil // a caller who may invite need not be able to see the group
	}
	return g.Interface().(*iampb.Group).GetName(), nil
}

// draftMail prints a message that invites a person.
func draftMail(a *noun.App, i *iampb.GroupInvite, group, link string) error {
	api, err := a.Server()
	if err != nil {
		return err
	}
	until := i.GetExpirationTime().AsTime().UTC().Format("2 January 2006, 15:04 UTC")
	uses := "It works until " + until + "."
	if i.GetSingleUse() {
		uses = "It works once, until " + until + "."
	}
	if i.GetEmail() != "" {
		fmt.Fprintln(a.Out, output.Printable("To: "+i.GetEmail()))
		uses += " It is for " + i.GetEmail() + " alone: sign in with that address."
	}
	invited := fmt.Sprintf("you are invited to %s at %s, with the role %s.", group, holdfast.Audience(api.Text),
		i.GetRole().GetName())
	for _, line := range []string{
		"Subject: Join " + group, "", "Hello,", "", invited,
		"To join, open this link:", "", "  " + link, "", uses,
	} {
		fmt.Fprintln(a.Out, output.Printable(line))
	}
	return nil
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
			columns := output.Columns(output.NameOf("identity", "identity"), output.PathOf("group", "group"))
			return a.Show(ctx, output.View{Plural: "sessions", ID: "group", Columns: columns}, m)
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
			return noun.ShowAll(ctx, a, output.View{
				Plural: "joins", ID: "identityUid",
				Columns: output.Columns("email", "name", output.PathOf("group", "groupUid"), output.NameOf("role", "roleUid"),
					"joinTime"),
				Wide: output.Columns("identityUid", "inviteUid", "groupUid", "roleUid"),
			}, m.GetJoins())
		}),
	}
	a.RegisterRef(cmd, new(string), "parent", noun.Groups(),
		"only invites to `GROUP` and its subgroups")
	return cmd
}
