package auth

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// sessionsCommand lists sessions, and has a command that ends them.
func sessionsCommand(a *noun.App) *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use: "sessions", Short: "List where you are signed in",
		Long: "A session is a sign-in that renews itself: of a command or of a browser. What an ended session had is void at once.",
		Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			uid, err := a.ResolveAny(ctx, iam.Identities(), identity)
			if err != nil {
				return err
			}
			req := &signinpb.ListSessionsRequest{IdentityUid: uid}
			m, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).ListSessions, req, sessionFlags)
			if err != nil {
				return err
			}
			return noun.ShowAll(a, output.View{
				Plural: "sessions", ID: "id",
				Columns: output.Columns("id", "program", "from=address", "used=useTime", "ends=expireTime", "current"),
				Wide:    output.Columns("createTime", "identityUid", "agent"),
			}, m.GetSessions())
		}),
	}
	cmd.AddCommand(endSessions(a))
	a.RegisterRef(cmd, &identity, "identity", iam.Identities(), whoseHelp)
	return cmd
}

const (
	everySession = "-" // in place of an id
	whoseHelp    = "`IDENTITY` whose sessions these are (your own)"
)

var sessionFlags = map[string]string{"identity_uid": "--identity", "id": "ID"}

func endSessions(a *noun.App) *cobra.Command {
	var identity string
	var all bool
	cmd := &cobra.Command{
		Use: "end ID...", Short: "End sessions",
		Long:    "Ends sessions of yours, or with --identity those of somebody whose role bindings you may change.",
		Example: "  holdfast auth sessions end 7c1f…\n  holdfast auth sessions end --all --identity acme/ann",
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return problem.Usage("give the id of each session to end, or --all")
			}
			uid, err := a.ResolveAny(ctx, iam.Identities(), identity)
			if err != nil {
				return err
			}
			if all {
				args = []string{everySession}
			}
			for _, id := range args {
				req := &signinpb.EndSessionRequest{Id: id, IdentityUid: uid}
				if _, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).EndSession, req, sessionFlags); err != nil {
					return err
				}
				if all {
					a.Note("ended all sessions")
				} else {
					a.Note("ended session %s", id)
				}
			}
			return nil
		}),
	}
	a.RegisterRef(cmd, &identity, "identity", iam.Identities(), whoseHelp)
	cmd.Flags().BoolVar(&all, "all", false, "end all of them, this one too")
	return cmd
}
