package orgfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// softLimit is the memory from which the garbage collector works harder, because the YAML
// library leaves much garbage.
const softLimit = 400 << 20

func fmtCommand(a *noun.App) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "fmt FILE...", Short: "Sort files and write them in one style, with their comments",
		Long: "Rewrites the files that are not in this form, and prints their names. With - it reads standard input and\n" +
			"writes standard output.",
		Example: "  holdfast org fmt acme.yaml\n  holdfast org fmt --check acme/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			debug.SetMemoryLimit(softLimit)
			changed := false
			for _, path := range args {
				done, err := formatFile(a, path, check)
				if err != nil {
					return mistaken(err)
				}
				changed = changed || done
			}
			if check && changed {
				return problem.New(problem.ExitNo, "")
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&check, "check", false, "change nothing; the exit code is 3 if a file is not in this form")
	return cmd
}

func formatFile(a *noun.App, path string, check bool) (changed bool, _ error) {
	files, err := readFiles(a, path)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		text, err := format.Format(f)
		if err != nil {
			return changed, err
		}
		if path == "-" {
			_, err := a.Out.Write(text)
			return false, err
		}
		if string(text) == string(f.Text) {
			continue
		}
		changed = true
		fmt.Fprintln(a.Out, f.Name)
		if !check {
			if err := replaceFile(f.Name, text); err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".holdfast-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func schemaCommand(a *noun.App) *cobra.Command {
	var kinds bool
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of files, or the kinds that they can contain", Args: cobra.NoArgs,
		Example: "  holdfast org schema > organization.schema.json\n  holdfast org schema --kinds",
		RunE: a.Do(func(context.Context, *cobra.Command, []string) error {
			if kinds {
				for _, k := range model.Kinds {
					fmt.Fprintln(a.Out, k.Name)
				}
				return nil
			}
			text, err := format.JSONSchema()
			if err == nil {
				fmt.Fprintln(a.Out, string(text))
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&kinds, "kinds", false, "print the names of the kinds")
	return cmd
}
