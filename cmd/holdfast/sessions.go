package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// signInMethod is a method of the service for people who sign in.
func signInMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(signinpb.File_holdfast_signin_v1_signin_proto).Methods().ByName(name)
}

func sessionsNoun() noun {
	return noun{
		use: "sessions", one: "session", id: "id", message: (*signinpb.Session)(nil).ProtoReflect().Descriptor(),
		columns: []column{
			{name: "id", path: "id"}, {name: "program", path: "program"}, {name: "from", path: "address"},
			{name: "used", path: "useTime"}, {name: "ends", path: "expireTime"}, {name: "current", path: "current"},
		},
		wide: columnsOf("createTime", "identityUid", "agent"),
	}
}

// sessions lists sessions, and has a command that ends them.
func (a *app) sessions() *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use: "sessions", Short: "List where you are signed in",
		Long: "A session is a sign-in that renews itself: of a command or of a browser. What an ended session had is void at once.",
		Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, _ []string) error {
			uid, err := c.whose(ctx, identity)
			if err != nil {
				return err
			}
			m, err := c.call(ctx, signInMethod("ListSessions"), &signinpb.ListSessionsRequest{IdentityUid: uid}, whoseFlag)
			if err != nil {
				return err
			}
			return a.showAll(sessionsNoun(), m, "sessions")
		}),
	}
	cmd.AddCommand(a.endSessions())
	a.registerWhose(cmd, &identity)
	return cmd
}

// everySession stands for the id of each.
const everySession = "-"

var whoseFlag = map[string]string{"identity_uid": "--identity", "id": "ID"}

func (a *app) registerWhose(cmd *cobra.Command, identity *string) {
	cmd.Flags().StringVar(identity, "identity", "", "`IDENTITY` whose sessions these are (your own)")
	must(cmd.RegisterFlagCompletionFunc("identity", a.completeFlag(identities())))
}

// whose finds the identity of a flag; "" is the caller.
func (c *client) whose(ctx context.Context, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return c.resolve(ctx, identities(), text)
}

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
			c, err := a.client(ctx)
			if err != nil {
				return err
			}
			uid, err := c.whose(ctx, identity)
			if err != nil {
				return err
			}
			if all {
				args = []string{everySession}
			}
			for _, id := range args {
				if err := c.endSession(ctx, &signinpb.EndSessionRequest{Id: id, IdentityUid: uid}); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	a.registerWhose(cmd, &identity)
	cmd.Flags().BoolVar(&all, "all", false, "end all of them, this one too")
	return cmd
}

func (c *client) endSession(ctx context.Context, req *signinpb.EndSessionRequest) error {
	if _, err := c.call(ctx, signInMethod("EndSession"), req, whoseFlag); err != nil {
		return err
	}
	if req.GetId() == everySession {
		c.app.note("ended all sessions")
		return nil
	}
	c.app.note("ended session %s", req.GetId())
	return nil
}

// revoke ends a person's session at the server: whatever was made of it is void
// from then on. A session that is over already is no error.
func (a *app) revoke(ctx context.Context, s *signIn) error {
	t, err := s.vault().read(s.audience)
	if err != nil || t.Refresh == "" {
		return err
	}
	err = a.revokeWith(ctx, s)
	if p, ok := errors.AsType[*problem](err); ok && p.code == exitUnauthenticated {
		return nil
	}
	return err
}

func (a *app) revokeWith(ctx context.Context, s *signIn) error {
	c, err := a.connect(settingValue{s.audience, "api"}, s.credential())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.call(ctx, signInMethod("EndSession"), &signinpb.EndSessionRequest{Id: "current"}, nil)
	return err
}

// signOut ends the session at the server and forgets it here. What cannot be
// ended is forgotten all the same.
func (a *app) signOut(ctx context.Context, s *signIn) error {
	revoked := a.revoke(ctx, s)
	if err := s.alone(ctx, s.end); err != nil {
		return err
	}
	if revoked != nil {
		return fmt.Errorf("the session is forgotten here, but could not be ended at the server: %w", revoked)
	}
	a.note("signed out of %s", s.audience)
	return nil
}
