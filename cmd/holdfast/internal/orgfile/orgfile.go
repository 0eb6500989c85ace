// Package orgfile contains the commands that keep an organization in a file: export, fmt,
// plan and apply. Package model has the resources, format the files, state what the server
// has, and plan the difference.
package orgfile

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/state"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// Command returns the commands for organizations in files.
func Command(a *noun.App) *cobra.Command {
	cmd := a.Branch("org", "Keep an organization in a file: export it, and plan and apply changes",
		exportCommand(a), fmtCommand(a), schemaCommand(a), planCommand(a), applyCommand(a))
	cmd.Long = "A file contains folders, roles, bindings, workloads, repos and more of a group, with names and paths\n" +
		"in place of uids. It manages only the kinds that it has a section for, only in its group and below it."
	return cmd
}

func kindNames() (all []string) {
	for _, k := range model.Kinds {
		all = append(all, k.Name)
	}
	return all
}

func exportCommand(a *noun.App) *cobra.Command {
	var kinds []string
	var folder string
	cmd := &cobra.Command{
		Use: "export GROUP", Short: "Write a group and everything below it as a file",
		Long: "Writes the kinds that you may read on the whole group. The others are named on standard error and in a\n" +
			"comment, and the file does not manage them.",
		Example: "  holdfast org export acme > acme.yaml\n  holdfast org export acme/platform --kinds roles,bindings\n" +
			"  holdfast org export acme --dir acme",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteArgs(noun.Groups()),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			s, err := readState(ctx, a, args[0], kinds)
			if err != nil {
				return err
			}
			notes := exportNotes(s)
			for _, note := range notes {
				a.Note("%s", note)
			}
			dropOver(s.Model)
			if folder != "" {
				return writeFolder(folder, s.Model, notes)
			}
			return format.Write(a.Out, s.Model, notes)
		}),
	}
	cmd.Flags().StringSliceVar(&kinds, "kinds", kindNames(), "`KINDS` to write, separated by commas")
	cmd.Flags().StringVar(&folder, "dir", "", "write one file for each folder directly below GROUP into `FOLDER`")
	noun.CompleteWords(cmd, "kinds", kindNames())
	return cmd
}

// readState reads a group that a person names.
func readState(ctx context.Context, a *noun.App, group string, kinds []string) (*state.State, error) {
	for _, name := range kinds {
		if model.KindOf(name) == nil {
			return nil, problem.Usage("%q is not a kind that files can contain", name).Hint(strings.Join(kindNames(), ", "))
		}
	}
	uid, err := a.Resolve(ctx, noun.Groups(), group)
	if err != nil {
		return nil, err
	}
	path, err := pathOf(ctx, a, uid)
	if err != nil {
		return nil, err
	}
	return state.Read(ctx, a, uid, path, kinds)
}

func pathOf(ctx context.Context, a *noun.App, uid string) (string, error) {
	req := &accesspb.LookupNamesRequest{Uids: []string{uid}}
	got, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).LookupNames, req)
	if err != nil {
		return "", err
	}
	if len(got.GetNames()) == 0 || got.GetNames()[0].GetPath() == "" {
		return "", problem.New(problem.ExitNotFound, "there is no group %s that you can see", uid)
	}
	return got.GetNames()[0].GetPath(), nil
}

// exportNotes says what the file does not have.
func exportNotes(s *state.State) (notes []string) {
	for _, u := range s.Unreadable {
		notes = append(notes, u.String())
	}
	for _, r := range s.Unclear {
		notes = append(notes, "not written, because another "+r.Kind.One+" has the same path: "+r.Path()+" ("+r.UID+")")
	}
	for _, k := range model.Kinds {
		for i := range k.Fields {
			if f := &k.Fields[i]; f.Secret && len(s.Resources[k.Name]) > 0 && s.Manages(k) {
				notes = append(notes, k.Name+": "+f.Name+" is a secret, which the server does not return")
			}
		}
	}
	return notes
}

// dropOver removes resources that have ended.
func dropOver(m *model.Model) {
	for _, k := range model.Kinds {
		if k.Over == nil {
			continue
		}
		resources := slices.DeleteFunc(m.Sorted(k), func(r *model.Resource) bool { return r.Over })
		m.Add(k, resources)
	}
}

// mistaken returns a problem for mistakes in files.
func mistaken(err error) error {
	var one *format.Error
	var all format.Mistakes
	if errors.As(err, &one) || errors.As(err, &all) {
		return problem.New(problem.ExitError, "%s", output.Printable(err.Error()))
	}
	return err
}
