package iam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/access/workload"
)

// A preset describes the tokens of a platform. The command iam identities create derives
// rules from it, and the command dev token derives tokens.
type preset struct {
	workload.Platform
	example string // example in the help of create
	dev     string // flags in the example of dev token
	// issuer returns the issuer of a self-hosted server. It is nil if the preset has no
	// --server.
	issuer func(server string) (string, error)
	// snippet is what a workload needs, with $ISSUER and $AUDIENCE for the address of the issuer, $REGISTRY for the
	// host of the registry and $UID for the identity. use names the place for it; it is "" if there is no snippet.
	use, snippet string
	// claims returns the claims of a job's token. The test issuer adds missing claims.
	claims func(p workload.Platform, j job) map[string]any
}

// A job is a workload of a platform: the values of the flags that describe it.
type job = workload.Job

// flags returns the fields for which the command has flags.
func (p preset) flags() []workload.Field {
	return slices.DeleteFunc(slices.Clone(p.Fields), func(f workload.Field) bool { return f.Help == "" })
}

func (p preset) register(set *pflag.FlagSet) {
	for _, f := range p.flags() {
		if strings.Contains(f.Help, "`") { // the quotes mark the name of the value
			set.String(f.Name, "", f.Help)
		} else {
			set.Bool(f.Name, false, f.Help)
		}
	}
}

func (p preset) job(set *pflag.FlagSet) job {
	j := job{}
	for _, f := range p.flags() {
		if v := set.Lookup(f.Name).Value; v.Type() != "bool" || v.String() == "true" {
			j[f.Name] = v.String()
		}
	}
	return j
}

// ruleOf returns the rule that accepts the tokens of a job.
func (p preset) ruleOf(j job) (workload.Rule, error) {
	if err := p.check(j); err != nil {
		return workload.Rule{}, err
	}
	if len(p.AtLeastOne) > 0 && len(given(j, p.AtLeastOne)) == 0 {
		return workload.Rule{}, problem.Usage("one or more of --%s is needed", strings.Join(p.AtLeastOne, ", --"))
	}
	if err := p.checkOne(j); err != nil {
		return workload.Rule{}, err
	}
	return p.Rule(j), nil
}

// claimsOf returns the claims of a job's token.
func (p preset) claimsOf(j job) (map[string]any, error) {
	for _, f := range p.flags() {
		j[f.Name] = cmp.Or(j[f.Name], f.Default)
	}
	if err := p.check(j); err != nil {
		return nil, err
	}
	if len(p.ExactlyOne) > 0 && len(given(j, p.ExactlyOne)) == 0 {
		j["branch"] = "main"
	}
	if err := p.checkOne(j); err != nil {
		return nil, err
	}
	return p.claims(p.Platform, j), nil
}

// check returns a problem if the values of a job are not valid. It also replaces a short
// git reference with the full one.
func (p preset) check(j job) error {
	var mistakes, numbers []string
	wrongNumber := false
	for _, f := range p.flags() {
		value := j[f.Name]
		switch {
		case f.Number:
			numbers = append(numbers, "--"+f.Name)
			wrongNumber = wrongNumber || !isNumber.MatchString(value)
		case f.Required && value == "":
			mistakes = append(mistakes, fmt.Sprintf("--%s is needed", f.Name))
		case f.Pattern != "" && !regexp.MustCompile(f.Pattern).MatchString(value):
			mistakes = append(mistakes, fmt.Sprintf("--%s: %q is not like %s", f.Name, value, f.Example))
		}
	}
	switch {
	case len(mistakes) > 0:
		return problem.Usage("%s", strings.Join(mistakes, "; "))
	case len(given(j, p.NotBoth)) > 1:
		return problem.Usage("a job runs on a --%s, not on both", strings.Join(p.NotBoth, " or a --"))
	case wrongNumber && len(numbers) == 1:
		return problem.Usage("%s is a number", numbers[0])
	case wrongNumber:
		return problem.Usage("%s are numbers", strings.Join(numbers, " and "))
	}
	if ref := j["ref"]; ref != "" {
		j["ref"] = fullRef(ref)
	}
	return nil
}

var isNumber = regexp.MustCompile(`^[0-9]*$`)

// checkOne returns a problem unless exactly one of the fields ExactlyOne is given.
func (p preset) checkOne(j job) error {
	if len(p.ExactlyOne) > 0 && len(given(j, p.ExactlyOne)) != 1 {
		return problem.Usage("exactly one of --%s is needed", strings.Join(p.ExactlyOne, ", --"))
	}
	return nil
}

// given returns the fields that have a value.
func given(j job, fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(name string) bool { return j[name] == "" })
}

// presets returns the presets of the platforms that the command knows.
func presets() (found []preset) {
	for _, p := range workload.Platforms() {
		extra := extras()[p.ID]
		extra.Platform = p
		found = append(found, extra)
	}
	return found
}

// identityPresets returns the commands that create an identity for a platform.
func identityPresets() (commands []func(*noun.App) *cobra.Command) {
	for _, p := range presets() {
		commands = append(commands, func(a *noun.App) *cobra.Command { return createPreset(a, p) })
	}
	return commands
}

// presetFlags are the flags that all presets share.
type presetFlags struct {
	description, issuer, server, keysFile, group string
	roles                                        []string
}

func createPreset(a *noun.App, p preset) *cobra.Command {
	var flags presetFlags
	cmd := &cobra.Command{
		Use: p.ID + " [NAME]", Short: "Create an identity for a workload of " + p.Title, Example: p.example,
		Args: cobra.MaximumNArgs(1),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			r, err := p.ruleOf(p.job(cmd.Flags()))
			if err != nil {
				return err
			}
			r.Name = append(args, presetName(r.Name))[0]
			identity, err := p.identity(a, flags, r)
			if err != nil {
				return err
			}
			uid, err := createBound(ctx, a, cmd, identity, flags)
			if err != nil || uid == "" {
				return err
			}
			return p.sayUse(ctx, a, uid)
		}),
	}
	f := cmd.Flags()
	p.register(f)
	f.StringVar(&flags.description, "description", "", "description of the identity, one line of `TEXT`")
	f.StringVar(&flags.issuer, "issuer", "", "`ADDRESS` of the issuer"+usualIssuer(p))
	f.StringVar(&flags.keysFile, "issuer-keys-file", "",
		"`FILE` with the public keys (JWKS) of an issuer that the server cannot reach; valid for a year")
	if p.issuer != nil {
		f.StringVar(&flags.server, "server", "", "`ADDRESS` of a self-hosted server of "+p.Title)
		cmd.MarkFlagsMutuallyExclusive("server", "issuer")
	}
	f.StringArrayVar(&flags.roles, "role", nil, "`ROLE` to grant; can be repeated")
	f.StringVar(&flags.group, "group", "", "`GROUP` to grant the roles on (default: the group of --parent)")
	f.String("parent", "", "`GROUP` to create it in")
	for flag, n := range map[string]noun.Noun{"role": Roles(), "group": noun.Groups(), "parent": noun.Groups()} {
		problem.Must(cmd.RegisterFlagCompletionFunc(flag, a.CompleteFlag(n)))
	}
	noun.AddDryRun(cmd)
	return cmd
}

func usualIssuer(p preset) string {
	if p.Issuer == "" {
		return ""
	}
	return " (default: " + p.Issuer + ")"
}

// presetName converts a text to a valid name.
func presetName(s string) string {
	return strings.Trim(notName.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

var notName = regexp.MustCompile(`[^a-z0-9._-]+`)

// identity returns an identity with the rule.
func (p preset) identity(a *noun.App, flags presetFlags, r workload.Rule) (*iampb.Identity, error) {
	issuer := cmp.Or(flags.issuer, p.Issuer)
	if flags.server != "" {
		var err error
		if issuer, err = p.issuer(strings.TrimRight(flags.server, "/")); err != nil {
			return nil, err
		}
	}
	if issuer == "" {
		return nil, problem.Usage("--issuer is needed")
	}
	identity := &iampb.Identity{Name: r.Name, Description: flags.description}
	if flags.keysFile != "" {
		return identity, withKeys(a, identity, flags.keysFile, issuer, r)
	}
	match := &iampb.Identity_ClaimMatch{Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: issuer}, Claims: r.Claims}
	match.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: r.Subject}
	if r.Pattern != "" {
		match.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: r.Pattern}
	}
	identity.Relationship = &iampb.Identity_ClaimMatch_{ClaimMatch: match}
	return identity, nil
}

// withKeys makes an identity trust the keys in a file. The API allows that only for one
// exact subject without further claims.
func withKeys(a *noun.App, identity *iampb.Identity, file, issuer string, r workload.Rule) error {
	if r.Subject == "" || len(r.Claims) > 0 {
		return problem.Usage("--issuer-keys-file needs one exact subject, and these flags allow several")
	}
	keys, err := a.ReadText(file)
	if err != nil {
		return fmt.Errorf("--issuer-keys-file: %w", err)
	}
	identity.Relationship = &iampb.Identity_StaticKeys_{
		StaticKeys: &iampb.Identity_StaticKeys{Issuer: issuer, Subject: r.Subject, IssuerKeys: keys},
	}
	return nil
}

// presetFields maps fields that the server may refuse to their flags.
var presetFields = map[string]string{
	"name": "NAME", "description": "--description", "parent": "--parent", "claim_match.issuer": "--issuer",
	"static_keys.issuer": "--issuer", "static_keys.issuer_keys": "--issuer-keys-file",
}

// sayUse prints how a workload uses its new identity, if the result is printed for people.
func (p preset) sayUse(ctx context.Context, a *noun.App, uid string) error {
	format, err := a.Value("output")
	if err != nil || p.use == "" || len(a.Columns) > 0 || format.Text != "" && format.Text != "table" {
		return err
	}
	a.Note("its uid is %s", uid)
	issuer, err := a.Issuer()
	if err != nil {
		return err
	}
	found, err := signin.Call(ctx, ocipb.NewOCIServiceClient(a).GetRegistry, &ocipb.GetRegistryRequest{})
	if err != nil {
		return err
	}
	a.Note("add this to the %s; later steps of the job can push and pull, if the identity has a role for that:", p.use)
	fmt.Fprintln(a.Err, strings.NewReplacer("$ISSUER", issuer, "$AUDIENCE", url.QueryEscape(issuer), "$UID", uid,
		"$REGISTRY", output.Printable(found.GetHost())).Replace(p.snippet))
	return nil
}

// createBound creates an identity and its role bindings, and returns its UID, or "" in a dry run. It checks as much as
// possible before it writes.
func createBound(
	ctx context.Context, a *noun.App, cmd *cobra.Command, identity *iampb.Identity, flags presetFlags,
) (uid string, _ error) {
	parent, err := a.ParentOf(ctx, Identities(), cmd)
	if err != nil {
		return "", err
	}
	group := parent
	if flags.group != "" {
		if group, err = a.Resolve(ctx, noun.Groups(), flags.group); err != nil {
			return "", fmt.Errorf("--group: %w", err)
		}
	}
	uids := make([]string, len(flags.roles))
	for i, role := range flags.roles {
		if uids[i], err = a.Resolve(ctx, Roles(), role); err != nil {
			return "", fmt.Errorf("--role: %w", err)
		}
	}
	req := &iampb.CreateIdentityRequest{Parent: parent, Identity: identity}
	m, err := a.Write(ctx, cmd, Identities().Method("Create"), req.ProtoReflect(), presetFields)
	if err != nil {
		return "", err
	}
	if err := a.Show(ctx, Identities().View(), m.Interface()); err != nil {
		return "", err
	}
	if err := a.Out.Flush(); err != nil { // prints the identity before the notes
		return "", err
	}
	dry, _ := cmd.Flags().GetBool("dry-run")
	place := flags.group
	if place == "" && len(uids) > 0 {
		place = a.Called(ctx, group)(group).Path
	}
	for i, role := range uids {
		if dry {
			a.Note("it would have the role %s on %s", flags.roles[i], place)
			continue
		}
		if err := Bind(ctx, a, noun.UIDOf(m), role, group); err != nil {
			return "", fmt.Errorf("identity %s is created, but without the role %s: %w", noun.UIDOf(m), flags.roles[i], err)
		}
		a.Note("it has the role %s on %s", flags.roles[i], place)
	}
	if dry {
		return "", nil
	}
	return noun.UIDOf(m), nil
}

// Bind creates a role binding.
func Bind(ctx context.Context, a *noun.App, identity, role, group string) error {
	binding := &iampb.RoleBinding{IdentityUid: identity, RoleUid: role}
	req := &iampb.CreateRoleBindingRequest{Parent: group, RoleBinding: binding}
	_, err := signin.Call(ctx, iampb.NewRoleBindingsServiceClient(a).CreateRoleBinding, req, "parent=--parent",
		"role_uid=--role")
	return err
}

// fullRef returns the full name of a git reference. A short name is a branch.
func fullRef(ref string) string {
	if strings.HasPrefix(ref, "refs/") {
		return ref
	}
	return "refs/heads/" + ref
}

// Dev returns the commands for a server in development mode.
func Dev(a *noun.App) *cobra.Command {
	token := a.Branch("token", "Print a workload token signed by the test issuer")
	token.Long = "Prints a token like the tokens that a platform gives to workloads, signed by the test issuer of\n" +
		"holdfastd --dev. Use it to test an identity that trusts this issuer (create … --issuer) without a pipeline."
	for _, p := range presets() {
		example := "  holdfast dev token " + p.ID + " " + p.dev
		token.AddCommand(devToken(a, p, "Print a token like a token of "+p.Title, example))
	}
	raw := preset{Platform: workload.Platform{ID: "raw"}}
	token.AddCommand(devToken(a, raw, "Print a token with the given claims only",
		"  holdfast dev token raw --claim sub=me"))
	return a.Branch("dev", "Work with a server in development mode", token)
}

// devToken returns a command that prints a token with the claims of a job, if the preset
// has claims.
func devToken(a *noun.App, p preset, short, example string) *cobra.Command {
	var file string
	var texts, values []string
	cmd := &cobra.Command{
		Use: p.ID, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			claims := map[string]any{}
			if p.claims != nil {
				var err error
				if claims, err = p.claimsOf(p.job(cmd.Flags())); err != nil {
					return err
				}
				claims["preset"] = p.ID
			}
			dev, err := a.DevServer(file)
			if err != nil {
				return err
			}
			claims["aud"] = dev.AuthURL // the server is the audience of the token
			if err := addClaims(claims, texts, values); err != nil {
				return err
			}
			token, err := a.Mint(ctx, dev.TestIssuer, claims)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, token)
			return nil
		}),
	}
	f := cmd.Flags()
	p.register(f)
	f.StringArrayVar(&texts, "claim", nil, "claim and its text, `KEY=VALUE`; can be repeated")
	f.StringArrayVar(&values, "claim-json", nil,
		"claim and its value in JSON, `KEY=JSON`; null removes it; can be repeated")
	f.StringVar(&file, "dev-file", "",
		"`FILE` that the server writes (default: the file of config use-dev, or data/dev.json)")
	return cmd
}

func addClaims(claims map[string]any, texts, values []string) error {
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return problem.Usage("--claim: %q is not of the form key=value", text)
		}
		claims[k] = v
	}
	for _, text := range values {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" || !json.Valid([]byte(v)) {
			return problem.Usage("--claim-json: %q is not of the form key=json", text)
		}
		claims[k] = json.RawMessage(v)
	}
	return nil
}
