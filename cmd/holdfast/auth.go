package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	holdfast "github.com/holdfast-dev/holdfast/client"
)

// auth is the commands about who this command acts as.
func (a *app) auth() *cobra.Command {
	cmd := a.branch("auth", "Sign in, and get tokens",
		a.login(), a.logout(), a.sessions(), a.printToken(), a.status(), a.configureDocker(), a.pullTokens())
	cmd.Long = "A session belongs to one server. Every other command uses it, and gets the next token by itself."
	return cmd
}

func (a *app) login() *cobra.Command {
	var identity, file string
	var wish personWish
	cmd := &cobra.Command{
		Use: "login", Short: "Sign in: a person with a browser, a workload with --identity",
		Long: "Opens a browser to sign in with, and keeps a session that renews itself.\n\n" +
			"With --identity it exchanges the token that a platform gives a workload for one of the server's, and again whenever\n" +
			"that expires. Without --identity-token the token is that of HOLDFAST_IDENTITY_TOKEN_FILE, or of the platform this runs on:\n" +
			"GitHub Actions, GitLab CI, Buildkite, a pod with a token at " + holdfast.KubernetesTokenFile + ",\n" +
			"or credentials of AWS in its variables.",
		Example: "  holdfast auth login\n" +
			"  holdfast auth login --organization acme --headless\n" +
			"  holdfast auth login --identity 41c2…/9f3a… --identity-token token.jwt\n" +
			"  get-token | holdfast auth login --identity 41c2…/9f3a… --identity-token -",
		Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			set, err := a.value("identity")
			if err != nil {
				return err
			}
			if identity == "" && file == "" && (set.value == "" || wish.person()) {
				return a.signInPerson(ctx, wish)
			}
			if identity = cmp.Or(identity, set.value); identity == "" {
				return usage("--identity-token needs --identity")
			}
			if err := checkUID(identity); err != nil {
				return usage("--identity: %v", err)
			}
			return a.signInAs(ctx, identity, file)
		}),
	}
	cmd.Flags().StringVar(&identity, "identity", "", "`UID` of the identity to assume")
	cmd.Flags().StringVar(&file, "identity-token", "", "`FILE` that holds the token which proves it; - is standard input")
	wish.register(cmd)
	return cmd
}

func (a *app) logout() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the session, and forget its tokens", Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			api, err := a.server()
			if err != nil {
				return err
			}
			s, err := a.signIn(api.value)
			if err != nil {
				return err
			}
			return a.signOut(ctx, s)
		}),
	}
}

func (a *app) printToken() *cobra.Command {
	var audience string
	cmd := &cobra.Command{
		Use: "token", Short: "Print a token, and nothing else",
		Example: "  curl -H \"Authorization: Bearer $(holdfast auth token)\" https://holdfast.example.com/iam/v2beta1/groups\n" +
			"  holdfast auth token --audience registry.example.com | docker login -u _token --password-stdin registry.example.com",
		Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			api, err := a.server()
			if err != nil {
				return err
			}
			token, err := a.tokenFor(ctx, api, cmp.Or(audience, holdfast.Audience(api.value)))
			if err != nil {
				return err
			}
			if token == "" {
				return newProblem(exitUnauthenticated, "there is no session at %s", api.value).hint(noTokenHint)
			}
			fmt.Fprintln(a.out, token)
			return nil
		}),
	}
	cmd.Flags().StringVar(&audience, "audience", "", "what the token is for: the `ADDRESS` of the API (unless given), or the registry's host")
	return cmd
}

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Tell who this command acts as, until when, and how that is renewed",
		Long: "Reads the token that the next command would begin with, and asks nobody. The exit code is 4 if there is none,\n" +
			"or if it has expired and cannot be renewed.",
		Args: cobra.NoArgs,
		RunE: a.do(func(context.Context, *cobra.Command, []string) error {
			api, err := a.server()
			if err != nil {
				return err
			}
			st, err := a.sessionStatus(api.value)
			if err != nil {
				return err
			}
			if err := a.printStatus(st); err != nil {
				return err
			}
			if st.Expired && st.Renews == "" {
				return newProblem(exitUnauthenticated, "")
			}
			return nil
		}),
	}
}

func (a *app) printStatus(st sessionStatus) error {
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "json":
		return a.json(st)
	case "yaml":
		return yaml.NewEncoder(a.out).Encode(st)
	case "id":
		fmt.Fprintln(a.out, st.Identity)
		return nil
	}
	until := st.Expiry
	if st.Expired {
		until += ", which is over"
	}
	a.pairs([][2]string{
		{"server", st.API}, {"issuer", st.Issuer}, {"identity", st.Identity}, {"email", st.Email}, {"proven by", st.Actor}, {"provider", st.Provider},
		{"until", until}, {"token in", st.Kept}, {"renewed", cmp.Or(st.Renews, "not at all")},
	})
	return nil
}
