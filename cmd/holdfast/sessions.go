package main

import (
	"context"

	"github.com/spf13/cobra"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// sessions lists sessions, and has a command that ends them.
func (a *app) sessions() *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use: "sessions", Short: "List where you are signed in",
		Long: "A session is a sign-in that renews itself: of a command or of a browser. What an ended session had is void at once.",
		Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			uid, err := a.resolveAny(ctx, identities(), identity)
			if err != nil {
				return err
			}
			req := &signinpb.ListSessionsRequest{IdentityUid: uid}
			m, err := call(ctx, signinpb.NewSignInServiceClient(a).ListSessions, req, sessionFlags)
			if err != nil {
				return err
			}
			return showAll(a, view{
				plural: "sessions", id: "id",
				columns: columnsOf("id", "program", "from=address", "used=useTime", "ends=expireTime", "current"),
				wide:    columnsOf("createTime", "identityUid", "agent"),
			}, m.GetSessions())
		}),
	}
	cmd.AddCommand(a.endSessions())
	a.registerRef(cmd, &identity, "identity", identities(), whoseHelp)
	return cmd
}

const (
	everySession = "-" // in place of an id
	whoseHelp    = "`IDENTITY` whose sessions these are (your own)"
)

var sessionFlags = map[string]string{"identity_uid": "--identity", "id": "ID"}

func (a *app) endSessions() *cobra.Command {
	var identity string
	var all bool
	cmd := &cobra.Command{
		Use: "end ID...", Short: "End sessions",
		Long:    "Ends sessions of yours, or with --identity those of somebody whose role bindings you may change.",
		Example: "  holdfast auth sessions end 7c1f…\n  holdfast auth sessions end --all --identity acme/ann",
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage("give the id of each session to end, or --all")
			}
			uid, err := a.resolveAny(ctx, identities(), identity)
			if err != nil {
				return err
			}
			if all {
				args = []string{everySession}
			}
			for _, id := range args {
				req := &signinpb.EndSessionRequest{Id: id, IdentityUid: uid}
				if _, err := call(ctx, signinpb.NewSignInServiceClient(a).EndSession, req, sessionFlags); err != nil {
					return err
				}
				if all {
					a.note("ended all sessions")
				} else {
					a.note("ended session %s", id)
				}
			}
			return nil
		}),
	}
	a.registerRef(cmd, &identity, "identity", identities(), whoseHelp)
	cmd.Flags().BoolVar(&all, "all", false, "end all of them, this one too")
	return cmd
}
