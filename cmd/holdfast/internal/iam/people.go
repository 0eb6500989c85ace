package iam

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

func people() noun.Noun {
	return noun.Noun{
		Use: "people", One: "person", Message: noun.MessageOf(&accesspb.Person{}),
		Filters: []noun.Field{
			{Flag: "query", Help: "only people whose name or e-mail address contains `TEXT`, or who have this uid"},
		},
		Columns: output.Columns(output.Text("name", title), output.Text("email", emails), "lastSeen=lastSeenTime"),
		Wide:    output.Columns("uid"),
	}
}

func title(p *accesspb.Person) string { return cmp.Or(p.GetDisplayName(), p.GetName()) }

func emails(p *accesspb.Person) string { return strings.Join(p.GetEmails(), ", ") }

// peopleCommand returns the commands about people.
func peopleCommand(a *noun.App) *cobra.Command {
	list := a.ListCommand(people())
	list.Example = "  holdfast iam people list --query example.com"
	cmd := a.Branch("people", "List the people in your organizations", list, getPerson(a))
	cmd.Long = "You see the people whom you would see in a role binding, and the holders of accounts that you may list."
	return cmd
}

func getPerson(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "get PERSON", Short: "Print a person",
		Long:              "PERSON is an e-mail address, the part of it before the @, a name, a uid, or me.",
		Example:           "  holdfast iam people get ann@example.com",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteArgs(Identities()),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			uid, err := a.Resolve(ctx, Identities(), args[0])
			if err != nil {
				return err
			}
			list := accesspb.NewAccessServiceClient(a).ListPeople
			found, err := signin.Call(ctx, list, &accesspb.ListPeopleRequest{Query: uid}, "query=PERSON")
			if err != nil {
				return err
			}
			for _, p := range found.GetPeople() {
				if p.GetUid() == uid {
					return a.Show(ctx, people().View(), p)
				}
			}
			return people().Missing(args[0])
		}),
	}
}
