package iam

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam/recipe"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
)

// addWizard adds the flag --wizard to the command that creates identity providers. With
// it the command asks for the values that no flag sets.
func addWizard(a *noun.App, providers *cobra.Command) {
	create, _, err := providers.Find([]string{"create"})
	problem.Must(err)
	ask := create.Flags().Bool("wizard", false, "ask for missing values, and test each answer")
	create.Flags().String("recipe", "", "with --wizard: the `PRODUCT` of the provider: "+
		strings.Join(recipe.Names(), ", "))
	noun.CompleteWords(create, "recipe", recipe.Names())
	args, run := create.Args, create.RunE
	create.Args = func(cmd *cobra.Command, given []string) error {
		if *ask && len(given) == 0 {
			return nil
		}
		return args(cmd, given)
	}
	runWizard := a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return (&wizard{App: a, cmd: cmd}).run(ctx, args)
	})
	create.RunE = func(cmd *cobra.Command, args []string) error {
		if *ask {
			return runWizard(cmd, args)
		}
		return run(cmd, args)
	}
}

// A wizard creates an identity provider step by step. It does not ask for values that
// flags set.
type wizard struct {
	*noun.App
	cmd      *cobra.Command
	recipe   recipe.Recipe
	parent   string
	provider *iampb.IdentityProvider
}

func (w *wizard) run(ctx context.Context, args []string) (err error) {
	w.provider = &iampb.IdentityProvider{Configuration: &iampb.IdentityProvider_Oidc{Oidc: &iampb.IdentityProvider_OIDC{}}}
	if len(args) > 0 {
		w.provider.Name = args[0]
	}
	if missing := w.missing(); len(missing) > 0 && !output.IsTerminal(w.In) {
		return problem.Usage("nothing was created: the wizard has questions, and there is no terminal to ask on").
			Hint("without a terminal, also use " + strings.Join(missing, ", "))
	}
	if w.parent, err = w.ParentOf(ctx, identityProviders(), w.cmd); err != nil {
		return err
	}
	if err := w.Fill(ctx, w.cmd, identityProviders().Fields, w.provider); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		w.introduce, w.askIssuer, w.askClient, w.askRest, w.create,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the flags and the argument that the wizard has to ask for.
func (w *wizard) missing() (flags []string) {
	for _, name := range []string{"recipe", "issuer", "client-id", "default-role"} {
		if !w.given(name) {
			flags = append(flags, "--"+name)
		}
	}
	if !w.given("client-secret-file") && !w.given("pkce") {
		flags = append(flags, "--client-secret-file or --pkce")
	}
	if w.provider.GetName() == "" {
		flags = append([]string{"NAME"}, flags...)
	}
	return flags
}

func (w *wizard) given(flag string) bool { return w.cmd.Flags().Changed(flag) }

// introduce prints the steps that the person has to take at the identity provider.
func (w *wizard) introduce(ctx context.Context) error {
	redirect, err := w.RedirectAddress(ctx)
	if err != nil {
		return err
	}
	if w.recipe, err = w.chooseRecipe(ctx); err != nil {
		return err
	}
	w.say("")
	w.say("Register Holdfast at %s first, with this redirect address:", w.recipe.Title)
	w.say("")
	w.say("  %s", redirect)
	w.say("")
	for i, step := range w.recipe.Steps {
		w.say("%d. %s", i+1, step)
	}
	for _, trap := range w.recipe.Traps {
		w.say("Note: %s", trap)
	}
	w.say("")
	return nil
}

func (w *wizard) chooseRecipe(ctx context.Context) (recipe.Recipe, error) {
	if w.given("recipe") {
		text, _ := w.cmd.Flags().GetString("recipe")
		if r, ok := recipe.Find(text); ok {
			return r, nil
		}
		return recipe.Recipe{}, problem.Usage("--recipe: %q is not one of %s", text, strings.Join(recipe.Names(), ", "))
	}
	for i, r := range recipe.All {
		w.say("  %d  %s", i+1, r.Title)
	}
	for {
		text, err := w.ask(ctx, "Which provider is it?", "other")
		if r, ok := recipe.Find(text); ok || err != nil {
			return r, err
		}
	}
}

// askIssuer asks for the issuer until the server can use its discovery document.
func (w *wizard) askIssuer(ctx context.Context) (err error) {
	oidc := w.provider.GetOidc()
	for {
		if !w.given("issuer") {
			question := "Issuer, of the form " + w.recipe.Issuer
			suggested := ""
			if w.recipe.Name == "google" {
				suggested = w.recipe.Issuer
			}
			if oidc.Issuer, err = w.ask(ctx, question, suggested); err != nil {
				return err
			}
		}
		// The client is not known yet, so the checks of the client are ignored.
		trial := &iampb.IdentityProvider_OIDC{Issuer: oidc.GetIssuer(), ClientId: "holdfast-wizard", PkceEnabled: true}
		good, err := w.test(ctx, trial, "discovery", "code", "keys")
		if err == nil && good {
			return nil
		}
		if err == nil {
			err = problem.New(problem.ExitNo, "nothing was created: the issuer cannot be used")
		}
		if err := w.again(err, "issuer"); err != nil {
			return err
		}
	}
}

// askClient asks for the client and its secret until the issuer accepts them.
func (w *wizard) askClient(ctx context.Context) (err error) {
	oidc := w.provider.GetOidc()
	if len(oidc.GetAdditionalScopes()) == 0 {
		oidc.AdditionalScopes = w.recipe.Scopes
	}
	if !w.given("groups-claim") {
		oidc.GroupsClaim = w.recipe.Groups
	}
	if !w.given("correlation-rule") {
		oidc.CorrelationRule = w.recipe.Rule
	}
	for {
		if !w.given("client-id") {
			if oidc.ClientId, err = w.ask(ctx, "Client ID", ""); err != nil {
				return err
			}
		}
		if !w.given("client-secret-file") && !w.given("pkce") {
			if oidc.ClientSecret, err = w.askSecret(ctx, "Client secret (press Enter if there is none)"); err != nil {
				return err
			}
			oidc.PkceEnabled = oidc.ClientSecret == ""
		}
		good, err := w.test(ctx, oidc, "pkce", "scopes", "redirect", "client")
		if err == nil && good {
			return nil
		}
		if err == nil {
			err = problem.New(problem.ExitNo, "nothing was created: the provider does not accept the client")
		}
		if err := w.again(err, "client-id"); err != nil {
			return err
		}
	}
}

// again prints err and returns nil if the person can answer a question again. Otherwise
// it returns err.
func (w *wizard) again(err error, flag string) error {
	if w.given(flag) || !output.IsTerminal(w.In) {
		return err
	}
	p := problem.From(w.cmd.Context(), err)
	if p.Code != problem.ExitNo && p.Code != problem.ExitError {
		return err
	}
	w.say("%s", p.Text)
	return nil
}

// askRest asks for the name of the provider and the role of its people.
func (w *wizard) askRest(ctx context.Context) (err error) {
	if w.provider.GetName() == "" {
		if w.provider.Name, err = w.ask(ctx, "Name of the provider", w.recipe.Name); err != nil {
			return err
		}
	}
	for w.provider.GetDefaultRole() == "" {
		role, err := w.ask(ctx, "Role of people who sign in for the first time", "viewer")
		if err != nil {
			return err
		}
		if w.provider.DefaultRole, err = w.Resolve(ctx, Roles(), role); err != nil {
			w.say("%v", err)
		}
	}
	return nil
}

// create creates the provider. Unless --enable is given, the provider is disabled. If there is a terminal, the wizard
// asks whether a complete sign-in has worked, and then enables the provider.
func (w *wizard) create(ctx context.Context) error {
	enable, _ := w.cmd.Flags().GetBool("enable")
	try := output.IsTerminal(w.In) && !enable && !w.provider.GetDisabled()
	w.provider.Disabled = w.provider.GetDisabled() || !enable
	dry, _ := w.cmd.Flags().GetBool("dry-run")
	providers := iampb.NewIdentityProvidersServiceClient(w)
	made, err := signin.Call(ctx, providers.CreateIdentityProvider, &iampb.CreateIdentityProviderRequest{
		Parent: w.parent, IdentityProvider: w.provider, ValidateOnly: dry,
	}, "parent=--parent", "name=NAME", "default_role=--default-role")
	if err != nil {
		return err
	}
	if dry {
		w.Note("dry run: nothing was changed")
		return w.Show(ctx, identityProviders().View(), made)
	}
	tested, err := signin.Call(ctx, signinpb.NewSignInServiceClient(w).TestIdentityProvider,
		&signinpb.TestIdentityProviderRequest{Uid: made.GetUid()}, "uid=NAME")
	if err != nil {
		return err
	}
	w.say("Its redirect address is %s. Try a complete sign-in, which shows your claims and grants nothing:",
		tested.GetRedirectUri())
	w.say("")
	w.say("  %s", tested.GetTrialUrl())
	w.say("")
	if !try {
		if made.GetDisabled() {
			w.say("It is disabled. Enable it with: holdfast iam identity-providers update %s --enable", made.GetUid())
		}
		return w.Show(ctx, identityProviders().View(), made)
	}
	if made, err = w.enable(ctx, made); err != nil {
		return err
	}
	return w.Show(ctx, identityProviders().View(), made)
}

// enable asks whether the sign-in has worked, and if so enables the provider for
// everybody.
func (w *wizard) enable(ctx context.Context, made *iampb.IdentityProvider) (*iampb.IdentityProvider, error) {
	answer, err := w.ask(ctx, "Did the page show what you expect? If so, enable sign-in for everybody (y/N)", "n")
	if err != nil {
		return nil, err
	}
	if answer != "y" && answer != "yes" {
		w.say("It stays disabled. Enable it with: holdfast iam identity-providers update %s --enable",
			made.GetUid())
		return made, nil
	}
	made.Disabled = false
	return signin.Call(ctx, iampb.NewIdentityProvidersServiceClient(w).UpdateIdentityProvider,
		&iampb.UpdateIdentityProviderRequest{
			IdentityProvider: made, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"disabled"}},
		}, "uid=NAME")
}

// test makes the server test a provider, prints the checks with these names, and reports
// whether they passed. Failures of the checks scopes and redirect do not count.
func (w *wizard) test(ctx context.Context, oidc *iampb.IdentityProvider_OIDC, names ...string) (bool, error) {
	req := &signinpb.TestIdentityProviderRequest{Parent: w.parent, IdentityProvider: &iampb.IdentityProvider{
		Name: "wizard", DefaultRole: w.parent, // placeholders, because the wizard asks for these values later
		Configuration: &iampb.IdentityProvider_Oidc{Oidc: oidc},
	}}
	result, err := signin.Call(ctx, signinpb.NewSignInServiceClient(w).TestIdentityProvider, req,
		"parent=--parent", "oidc.issuer=--issuer", "oidc.client_id=--client-id")
	if err != nil {
		return false, err
	}
	good := true
	for _, check := range result.GetChecks() {
		name, verdict := check.GetName(), "ok"
		if !slices.Contains(names, name) {
			continue
		}
		if !check.GetOk() {
			verdict = "no"
			good = good && (name == "scopes" || name == "redirect")
		}
		w.say("%s %s: %s", verdict, name, check.GetDetail())
	}
	return good, nil
}

// screen returns the file on which questions are shown: standard error, or the terminal
// if standard error is redirected.
func (w *wizard) screen() *os.File {
	if !output.IsTerminal(w.Err) && output.IsTerminal(w.In) {
		return w.In
	}
	return w.Err
}

func (w *wizard) say(format string, args ...any) {
	fmt.Fprintln(w.screen(), output.Printable(fmt.Sprintf(format, args...)))
}

// ask repeats a question until there is an answer. An empty answer selects the suggested
// one.
func (w *wizard) ask(ctx context.Context, question, suggested string) (string, error) {
	if suggested != "" {
		question += " [" + suggested + "]"
	}
	for {
		answer, err := w.answer(ctx, question, readLine)
		if answer == "" {
			answer = suggested
		}
		if answer != "" || err != nil {
			return answer, err
		}
	}
}

// askSecret asks for a text without showing it. The answer may be empty.
func (w *wizard) askSecret(ctx context.Context, question string) (string, error) {
	return w.answer(ctx, question, func(in *os.File) (string, error) {
		secret, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(w.screen())
		return string(secret), err
	})
}

func (w *wizard) answer(ctx context.Context, question string, read func(*os.File) (string, error)) (string, error) {
	fmt.Fprint(w.screen(), output.Printable(question)+": ")
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	state, _ := term.GetState(int(w.In.Fd())) // nil if the input is not a terminal
	go func() {
		text, err := read(w.In)
		done <- result{strings.TrimSpace(text), err}
	}()
	select {
	case <-ctx.Done():
		if state != nil { // shows typed characters again
			_ = term.Restore(int(w.In.Fd()), state)
		}
		fmt.Fprintln(w.screen())
		return "", problem.New(problem.ExitInterrupted, "interrupted: nothing was created")
	case r := <-done:
		if r.err != nil {
			return "", problem.Usage("the input ended before the answer")
		}
		return r.text, nil
	}
}

// readLine reads one line. It reads no byte after the line, which may be for another
// reader.
func readLine(in *os.File) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := in.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}
