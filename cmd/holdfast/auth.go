package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

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

func (a *app) signInAs(ctx context.Context, identity, file string) error {
	api, err := a.server()
	if err != nil {
		return err
	}
	issuer, err := a.issuer()
	if err != nil {
		return err
	}
	proof, err := a.proof(file)
	if err != nil {
		return err
	}
	next := session{Issuer: issuer, Identity: identity}
	if next.IdentityTokenFile, err = a.renewableFile(file); err != nil {
		return err
	}
	next.Ambient = file == "" && next.IdentityTokenFile == ""
	s, err := a.signIn(api.value)
	if err != nil {
		return err
	}
	c, err := a.connect(api, &credential{audience: s.audience, issuer: issuer})
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := a.exchange(ctx, c.Issuer(), holdfast.Workload{Identity: identity, Proof: proof})
	if err != nil {
		return err
	}
	if err := s.begin(ctx, next, t); err != nil {
		return err
	}
	claims, _ := holdfast.ReadClaims(t.Access)
	a.note("signed in to %s as %s until %s", s.audience, identity, shortTime(claims.Expires()))
	a.warnOverruled(s)
	return nil
}

// renewableFile is the file that a session reads its identity's token from
// again: whoever writes it keeps it fresh. Standard input is there once.
func (a *app) renewableFile(file string) (string, error) {
	set, err := a.value("identity_token_file")
	if file = cmp.Or(file, set.value); err != nil || file == "" || file == "-" {
		return "", err
	}
	return filepath.Abs(file)
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

// A sessionStatus is what `auth status` prints.
type sessionStatus struct {
	API      string `json:"api" yaml:"api"`
	Issuer   string `json:"issuer" yaml:"issuer"`
	Identity string `json:"identity" yaml:"identity"`
	Email    string `json:"email,omitempty" yaml:"email,omitempty"`
	Actor    string `json:"actor,omitempty" yaml:"actor,omitempty"`       // who the token's issuer knows as the identity
	Provider string `json:"provider,omitempty" yaml:"provider,omitempty"` // the identity provider that vouched for them
	Expiry   string `json:"expiry" yaml:"expiry"`
	Expired  bool   `json:"expired" yaml:"expired"`
	Kept     string `json:"kept" yaml:"kept"`
	Renews   string `json:"renews" yaml:"renews"`
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

func (a *app) sessionStatus(api string) (st sessionStatus, err error) {
	st.API = holdfast.Audience(api)
	if st.Issuer, err = a.issuer(); err != nil {
		return st, err
	}
	token, origin, err := a.givenToken()
	if err != nil {
		return st, err
	}
	st.Kept = origin
	identity, err := a.value("identity")
	if err != nil {
		return st, err
	}
	s, err := a.signIn(api)
	if err != nil {
		return st, err
	}
	switch {
	case token != "":
	case identity.value != "" && identity.value != s.Identity:
		st.Identity, st.Kept, st.Renews = identity.value, "nowhere", "by an exchange at every command, because of "+identity.origin
		return st, nil
	default:
		t, err := s.vault().read(s.audience)
		if err != nil {
			return st, err
		}
		token, st.Kept, st.Renews = t.Access, s.vault().place(s.audience), s.renews(t)
	}
	if token == "" && st.Renews == "" {
		return st, newProblem(exitUnauthenticated, "there is no session at %s", st.API).hint(noTokenHint)
	}
	st.describe(token, time.Now())
	return st, nil
}

// describe fills in what the token itself tells.
func (st *sessionStatus) describe(token string, now time.Time) {
	c, ok := holdfast.ReadClaims(token)
	if !ok {
		st.Identity = "unknown: the token is not one of the server's"
		return
	}
	st.Identity, st.Email = c.Subject, c.Email
	st.Provider, _, _ = strings.Cut(c.Voucher, "#")
	if c.Actor.Subject != "" {
		st.Actor = c.Actor.Subject + " at " + c.Actor.Issuer
	}
	st.Expiry, st.Expired = shortTime(c.Expires()), !c.Expires().After(now)
}

// renews says how the next token is got; "" if it is not.
func (s *signIn) renews(t tokens) string {
	switch {
	case t.Refresh != "":
		return "with a refresh token"
	case s.proves() && s.IdentityTokenFile != "":
		return "by exchanging the token in " + s.IdentityTokenFile
	case s.proves():
		return "by exchanging the token of the platform it runs on"
	case s.DevFile != "":
		return "from " + s.DevFile
	}
	return ""
}

func (a *app) printStatus(st sessionStatus) error {
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "json":
		return a.printJSON(st)
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
	a.printPairs([][2]string{
		{"server", st.API}, {"issuer", st.Issuer}, {"identity", st.Identity}, {"email", st.Email}, {"proven by", st.Actor}, {"provider", st.Provider},
		{"until", until}, {"token in", st.Kept}, {"renewed", cmp.Or(st.Renews, "not at all")},
	})
	return nil
}

// printPairs prints what has a value, one to a line.
func (a *app) printPairs(pairs [][2]string) {
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(a.out, "%s %s\n", a.paint(bold, fmt.Sprintf("%-10s", p[0])), printable(p[1]))
		}
	}
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
