package orgfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/plan"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/state"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
)

// exitChanges is the exit code of a plan that has changes. The commands that have it report
// mistakes in the command line with problem.ExitError.
const exitChanges = 2

// A choice has the flags that plan and apply share.
type choice struct {
	file, group string
	options     plan.Options
	// lenient means that a secret that cannot be read is only noted, because whoever plans need
	// not have it.
	lenient bool
}

func (c *choice) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.file, "file", "f", "", "`FILE` or folder of files that describes the group; - is standard input")
	f.StringVar(&c.group, "group", "", "`PATH` of the group, if it is not the group of the file")
	f.BoolVar(&c.options.Prune, "prune", false, "delete what the file does not name, of the kinds that it manages")
	f.BoolVar(&c.options.Secrets, "secrets", false, "send the secrets of existing resources again")
}

// A comparison is a plan, and the state from which it was made.
type comparison struct {
	*plan.Plan
	state    *state.State
	requests []plan.Request
	request  *organizationpb.ApplyOrganizationRequest // makes the changes
	// checked is the server's answer to the plan. It is nil if there are no changes, or if the
	// server refused to compute the consequences; refusal says why.
	checked *organizationpb.ApplyOrganizationResponse
	refusal string
}

// compare reads the files and the organization, and compares them.
func (c *choice) compare(ctx context.Context, a *noun.App) (*comparison, error) {
	files, err := readFiles(a, c.file)
	if err != nil {
		return nil, err
	}
	wanted, err := format.Parse(files...)
	if err != nil {
		return nil, mistaken(err)
	}
	if c.group == "" {
		c.group = wanted.Group
	}
	revision, err := readRevision(ctx, a, c.group)
	if err != nil {
		return nil, err
	}
	s, err := readState(ctx, a, c.group, wanted.Managed)
	if err != nil {
		return nil, err
	}
	found, err := s.Resolve(ctx, plan.Outside(wanted, s.Model))
	if err != nil {
		return nil, mistaken(err)
	}
	plan.Respell(wanted, found.Spellings)
	p, err := plan.Diff(s.Model, wanted, c.options)
	if err != nil {
		return nil, mistaken(err)
	}
	for kind, uids := range found.UIDs {
		for ref, uid := range uids {
			if spelling := found.Spellings[kind][ref]; spelling != "" {
				found.UIDs[kind][spelling] = uid
			}
		}
	}
	made := &comparison{Plan: p, state: s}
	secret := func(ref string) (string, error) {
		text, err := readSecret(ref)
		if err != nil && c.lenient {
			made.refusal = err.Error()
			return "", nil
		}
		return text, err
	}
	requests, err := plan.Maker{Outside: found.UIDs, Secret: secret}.Requests(p)
	if err != nil {
		return nil, mistaken(err)
	}
	made.requests = requests
	made.request, err = applyRequest(s.GroupUID, revision, requests)
	return made, err
}

// readSecret returns the value of a reference to a secret, which Clean has checked.
func readSecret(ref string) (string, error) {
	kind, name, _ := strings.Cut(ref, ":")
	if kind == "env" {
		value, ok := os.LookupEnv(name)
		if !ok || value == "" {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		return value, nil
	}
	f, err := readFile(name)
	return strings.TrimRight(string(f.Text), "\r\n"), err
}

func planCommand(a *noun.App) *cobra.Command {
	c := choice{lenient: true}
	var markdown, needs bool
	var out string
	cmd := &cobra.Command{
		Use: "plan -f FILE", Short: "Show what would change if a file were applied", Args: cobra.NoArgs,
		Long: "Compares a file with its group. Read access is enough. The exit code is 0 if nothing would change, 2 if\n" +
			"something would, and 1 if the plan failed.",
		Example: "  holdfast org plan -f acme.yaml\n  holdfast org plan -f acme --prune --markdown\n" +
			"  holdfast org plan -f acme.yaml --needs",
		Annotations: map[string]string{noun.MistakeCode: "1"},
		RunE: patient(a, func(ctx context.Context, _ *cobra.Command, _ []string) error {
			p, err := c.compare(ctx, a)
			if err != nil {
				return failed(ctx, err)
			}
			if needs {
				return failed(ctx, printNeeds(ctx, a, p))
			}
			broken := p.check(ctx, a)
			if err := errors.Join(printPlan(a, p, markdown), broken); err != nil {
				return failed(ctx, err)
			}
			if out != "" {
				if err := p.save(out); err != nil {
					return failed(ctx, err)
				}
			}
			if len(p.Changes) > 0 {
				return problem.New(exitChanges, "")
			}
			return nil
		}),
	}
	c.register(cmd)
	problem.Must(cmd.MarkFlagRequired("file"))
	cmd.Flags().StringVar(&out, "out", "", "write the plan to `FILE`, for holdfast org apply FILE")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the plan for a comment of a pull request")
	cmd.Flags().BoolVar(&needs, "needs", false,
		"print the capabilities that the changes need, and the smallest managed role that has them")
	return cmd
}

// failed gives an error an exit code that does not mean that there are changes.
func failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if p := problem.From(ctx, err); p.Code == exitChanges {
		p.Code = problem.ExitError
		return p
	}
	return err
}

// printNeeds prints the capabilities that the requests of a plan need.
func printNeeds(ctx context.Context, a *noun.App, p *comparison) error {
	var needed []string
	for _, r := range p.requests {
		needed = append(needed, state.Capabilities(r.Method)...)
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for _, c := range needed {
		fmt.Fprintln(a.Out, c)
	}
	if len(needed) == 0 {
		a.Note("nothing would change, so no capability is needed")
		return nil
	}
	role, err := p.state.SmallestRole(ctx, needed)
	switch {
	case err != nil:
		return err
	case role == "":
		a.Note("no managed role has all of these")
	default:
		a.Note("the smallest managed role that has all of these: %s", role)
	}
	if slices.ContainsFunc(p.Changes, grantsAccess) {
		a.Note("whoever applies the plan also needs every capability that its roles and bindings give")
	}
	return nil
}

// grantsAccess reports whether a change gives capabilities, which only their holder may do.
func grantsAccess(c *plan.Change) bool {
	switch c.Kind.Name {
	case model.Roles, model.Providers, "bindings", "groupMappings", "accessRules":
		return c.Action != plan.Delete && c.Action != plan.Rename
	}
	return false
}
