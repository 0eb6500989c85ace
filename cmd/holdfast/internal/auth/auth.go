// Package auth contains the commands that sign in and out and print tokens, the commands
// about pull tokens, and the credential helper for Docker.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// Command returns the commands for sign-in and tokens.
func Command(a *noun.App) *cobra.Command {
	cmd := a.Branch("auth", "Sign in, sign out and get tokens",
		login(a), logout(a), sessionsCommand(a), printToken(a), status(a), configureDocker(a), pullTokensCommand(a))
	cmd.Long = "A session belongs to one server. All other commands use it, and renew its token automatically."
	return cmd
}

// Login returns auth login as a top-level command.
func Login(a *noun.App) *cobra.Command { return login(a) }

// Logout returns auth logout as a top-level command.
func Logout(a *noun.App) *cobra.Command { return logout(a) }

// WhoAmI returns auth status under the name that other programs use.
func WhoAmI(a *noun.App) *cobra.Command {
	cmd := status(a)
	cmd.Use, cmd.Short = "whoami", "Show the identity that you are signed in as"
	cmd.Example = "  holdfast whoami\n  holdfast whoami -o id\n  holdfast whoami --web"
	return cmd
}

func login(a *noun.App) *cobra.Command {
	var identity, file string
	var person signin.Person
	cmd := &cobra.Command{
		Use: "login", Short: "Sign in with a browser, or as a workload with --identity",
		Long: "Opens a browser to sign in, and stores a session that is renewed automatically.\n\n" +
			"With --identity, exchanges the token of a workload for a token of the server, and repeats that when it expires.\n" +
			"The token of the workload is read from --identity-token, HOLDFAST_IDENTITY_TOKEN_FILE, or the platform:\n" +
			"GitHub Actions, GitLab CI, Buildkite, a pod with a token at " + holdfast.KubernetesTokenFile + ",\n" +
			"or AWS credentials in environment variables.",
		Example: "  holdfast auth login\n" +
			"  holdfast auth login --organization acme --headless\n" +
			"  holdfast auth login --identity 41c2…/9f3a… --identity-token token.jwt\n" +
			"  get-token | holdfast auth login --identity 41c2…/9f3a… --identity-token -",
		Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			set, err := a.Value("identity")
			if err != nil {
				return err
			}
			if identity == "" && file == "" && (set.Text == "" || person.Given()) {
				if err := a.SignInPerson(ctx, person); err != nil {
					return err
				}
				rememberOrganization(ctx, a)
				return nil
			}
			if identity = cmp.Or(identity, set.Text); identity == "" {
				return problem.Usage("--identity-token needs --identity")
			}
			if err := settings.CheckUID(identity); err != nil {
				return problem.Usage("--identity: %v", err)
			}
			if err := a.SignInAs(ctx, identity, file); err != nil {
				return err
			}
			rememberOrganization(ctx, a)
			return nil
		}),
	}
	cmd.Flags().StringVar(&identity, "identity", "", "`UID` of the identity to assume")
	cmd.Flags().StringVar(&file, "identity-token", "", "`FILE` with the token that proves it; - is standard input")
	person.Register(cmd)
	return cmd
}

// rememberOrganization stores the organization in the settings after a sign-in, if none
// is set and the identity can see exactly one. It ignores errors, because it is only a
// convenience.
func rememberOrganization(ctx context.Context, a *noun.App) {
	set, err := a.Value("organization")
	if err != nil || set.Text != "" || !a.UsesSession() {
		return
	}
	req := &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{InRoot: true}, PageSize: 2}
	got, err := iampb.NewGroupsServiceClient(a).ListGroups(ctx, req)
	if err != nil || len(got.GetGroups()) != 1 {
		return
	}
	g := got.GetGroups()[0]
	if settings.Change(func(values map[string]string) { values["organization"] = g.GetUid() }) == nil {
		a.Note("commands use the organization %s; to change it: holdfast config set organization NAME", g.GetName())
	}
}

func logout(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the session and delete its tokens", Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.SignOut(ctx)
		}),
	}
}

func printToken(a *noun.App) *cobra.Command {
	var audience string
	cmd := &cobra.Command{
		Use: "token", Short: "Print a token",
		Example: "  curl -H \"Authorization: Bearer $(holdfast auth token)\" \\\n" +
			"    https://holdfast.example.com/iam/v2beta1/groups\n" +
			"  holdfast auth token --audience registry.example.com | \\\n" +
			"    docker login -u _token --password-stdin registry.example.com",
		Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			token, err := a.TokenFor(ctx, audience)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, token)
			return nil
		}),
	}
	cmd.Flags().StringVar(&audience, "audience", "",
		"audience of the token: the `ADDRESS` of the API (default), or the host of the registry")
	return cmd
}

func status(a *noun.App) *cobra.Command {
	var offline, web *bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the current identity, and when and how its token is renewed",
		Long: "Reads the stored token, and asks the server whether it is still valid. The exit code is 4 if there is no\n" +
			"token, if it has expired and cannot be renewed, or if the session has ended.",
		Example: "  holdfast auth status\n  holdfast auth status --offline -o json",
		Args:    cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if *web {
				return a.Browse(ctx, signin.AccountPage())
			}
			st, err := a.Status()
			if err != nil {
				return err
			}
			if !*offline {
				checkSession(ctx, a, &st)
			}
			if err := printStatus(a, st); err != nil {
				return err
			}
			if st.Expired && st.Renews == "" || st.Ended {
				return problem.New(problem.ExitUnauthenticated, "")
			}
			return nil
		}),
	}
	offline = cmd.Flags().Bool("offline", false, "do not ask the server")
	web = cmd.Flags().Bool("web", false, "open the page of your account in a browser")
	return cmd
}

// checkSession asks the server whether the token of a status is valid. It does nothing if
// no token is stored, because every command assumes the identity again, or if the token
// has expired and is not renewed.
func checkSession(ctx context.Context, a *noun.App, st *signin.Status) {
	if st.Kept == signin.KeptNowhere || st.Expired && st.Renews == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).GetVersion, &accesspb.GetVersionRequest{})
	switch p, _ := errors.AsType[*problem.Problem](err); {
	case err == nil:
		st.Session = "the server accepts it"
		nameStatus(ctx, a, st)
	case p != nil && p.Code == problem.ExitUnauthenticated:
		st.Ended, st.Session = true, "it has ended: "+p.Text
	default:
		st.Session = "unknown: " + err.Error()
	}
}

// nameStatus adds the names of the identity and the provider to a status.
func nameStatus(ctx context.Context, a *noun.App, st *signin.Status) {
	uids := slices.DeleteFunc([]string{st.Identity, st.Provider}, func(uid string) bool { return !settings.IsUID(uid) })
	if len(uids) == 0 {
		return
	}
	got, err := accesspb.NewAccessServiceClient(a).LookupNames(ctx, &accesspb.LookupNamesRequest{Uids: uids})
	if err != nil {
		return // without names, the status shows the UIDs
	}
	for _, n := range got.GetNames() {
		switch n.GetUid() {
		case st.Identity:
			st.Name = signin.Title(n)
		case st.Provider:
			st.ProviderPath = n.GetPath()
		}
	}
}

func printStatus(a *noun.App, st signin.Status) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	switch format.Text {
	case "json":
		return a.JSON(st)
	case "yaml":
		return yaml.NewEncoder(a.Out).Encode(st)
	case "id":
		fmt.Fprintln(a.Out, st.Identity)
		return nil
	}
	until := st.Expiry
	if t, err := time.Parse(time.RFC3339, until); err == nil {
		until = a.When(t)
	}
	if st.Expired {
		until += ", which has passed"
	}
	wide, actor := "", st.Actor
	switch subject, issuer, _ := strings.Cut(actor, " at "); {
	case format.Text == "wide" && st.Name != "":
		wide = st.Identity
	case format.Text != "wide" && strings.HasPrefix(subject, "account:"):
		actor = "an account at " + issuer // the subject is a UID, which means nothing to people
	}
	a.Pairs([][2]string{
		{"server", st.API}, {"issuer", st.Issuer}, {"identity", cmp.Or(st.Name, st.Identity)}, {"uid", wide},
		{"email", st.Email}, {"proven by", actor}, {"provider", cmp.Or(st.ProviderPath, st.Provider)},
		{"until", until}, {"session", st.Session}, {"token in", st.Kept}, {"renewed", cmp.Or(st.Renews, "not at all")},
	})
	return nil
}

// sessionsCommand returns the command that lists sessions, with a subcommand that ends
// them.
func sessionsCommand(a *noun.App) *cobra.Command {
	var identity string
	var web bool
	cmd := &cobra.Command{
		Use: "sessions", Short: "List sessions",
		Long: "Lists your sessions of commands and browsers. When a session is ended, its tokens are revoked immediately.",
		Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if web && identity != "" {
				return problem.Usage("--web shows only your own account")
			}
			if web {
				return a.Browse(ctx, signin.AccountPage())
			}
			if err := a.Connect(ctx); err != nil {
				return err
			}
			uid, err := a.ResolveAny(ctx, iam.Identities(), identity)
			if err != nil {
				return err
			}
			req := &signinpb.ListSessionsRequest{IdentityUid: uid}
			m, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).ListSessions, req, sessionFlags...)
			if err != nil {
				return err
			}
			return noun.ShowAll(ctx, a, output.View{
				Plural: "sessions", ID: "id",
				Columns: output.Columns("id", "program", "from=address", "used=useTime", "ends=expireTime", "current"),
				Wide:    output.Columns("createTime", "identityUid", "agent"),
			}, m.GetSessions())
		}),
	}
	cmd.AddCommand(endSessions(a))
	cmd.Flags().BoolVar(&web, "web", false, "open the page of your account in a browser")
	a.RegisterRef(cmd, &identity, "identity", iam.Identities(), whoseHelp)
	return cmd
}

const whoseHelp = "`IDENTITY` of the sessions (default: your own)"

var sessionFlags = []string{"identity_uid=--identity", "id=ID"}

func endSessions(a *noun.App) *cobra.Command {
	var identity string
	var all bool
	cmd := &cobra.Command{
		Use: "end ID...", Short: "End sessions",
		Long:    "Ends your sessions or, with --identity, sessions of an identity whose role bindings you can change.",
		Example: "  holdfast auth sessions end 7c1f…\n  holdfast auth sessions end --all --identity acme/ann",
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return problem.Usage("use the ids of the sessions to end, or --all")
			}
			uid, err := a.ResolveAny(ctx, iam.Identities(), identity)
			if err != nil {
				return err
			}
			if all {
				args = []string{"-"} // ends every session
			}
			for _, id := range args {
				req := &signinpb.EndSessionRequest{Id: id, IdentityUid: uid}
				if _, err := signin.Call(ctx, signinpb.NewSignInServiceClient(a).EndSession, req, sessionFlags...); err != nil {
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
	cmd.Flags().BoolVar(&all, "all", false, "end all sessions, including this one")
	return cmd
}
