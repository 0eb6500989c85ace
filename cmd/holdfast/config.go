package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// config returns the commands about the settings of this program.
func config(a *noun.App) *cobra.Command {
	cmd := a.Branch("config", "Show and change the settings of this command",
		configView(a), configGet(a), configSet(a), configUnset(a), configUseDev(a), configProfiles(a))
	var long strings.Builder
	long.WriteString("A setting is read from a flag, an environment variable or the file, in this order.\n")
	for _, s := range settings.All() {
		fmt.Fprintf(&long, "\n  %-19s %-28s %s", s.Key, s.Variable(), s.About)
	}
	long.WriteString("\n\nHOLDFAST_TOKEN sets the token to use, and " + settings.ConfigVariable +
		" the path of the file.")
	cmd.Long = long.String()
	return cmd
}

func completeSettings(*cobra.Command, []string, string) (keys []string, _ cobra.ShellCompDirective) {
	for _, s := range settings.All() {
		keys = append(keys, s.Key+"\t"+s.About)
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}

func configSet(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting in the file",
		Example: "  holdfast config set api https://holdfast.example.com",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeSettings,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			s, err := settings.Find(args[0])
			if err != nil {
				return err
			}
			if s.Check != nil {
				if err := s.Check(args[1]); err != nil {
					return problem.Usage("%s: %v", s.Key, err)
				}
			}
			return settings.Change(func(values map[string]string) { values[s.Key] = args[1] })
		}),
	}
}

func configUnset(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "unset KEY", Short: "Remove a setting from the file",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeSettings,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			if _, err := settings.Find(args[0]); err != nil {
				return err
			}
			return settings.Change(func(values map[string]string) { delete(values, args[0]) })
		}),
	}
}

func configGet(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "get KEY", Short: "Print the current value of a setting",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeSettings,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			v, err := a.Value(args[0])
			if err != nil {
				return err
			}
			if v.Text == "" {
				return problem.New(problem.ExitNotFound, "%s is not set", args[0])
			}
			fmt.Fprintln(a.Out, v.Text)
			return nil
		}),
	}
}

func configView(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "view", Short: "Print every setting and its origin", Args: cobra.NoArgs,
		RunE: a.Do(func(context.Context, *cobra.Command, []string) error {
			t := &output.Table{Console: a.Console, Header: []string{"SETTING", "VALUE", "FROM"}}
			for _, s := range settings.All() {
				v, err := a.Value(s.Key)
				if err != nil {
					return err
				}
				t.Add([]string{s.Key, cmp.Or(v.Text, "-"), v.Origin})
			}
			api, err := a.Value("api")
			if err != nil {
				return err
			}
			if origin, err := a.TokenOrigin(api.Text); err != nil {
				return err
			} else if origin != "" {
				t.Add([]string{"token", "(hidden)", origin})
			}
			if err := t.Flush(); err != nil {
				return err
			}
			for _, note := range settings.Renamed() {
				a.Note("%s", note)
			}
			return nil
		}),
	}
}

func configProfiles(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "profiles", Short: "List and select profiles",
		Long: "A profile has its own settings and its own session, for another server or another account. --profile or\n" +
			"HOLDFAST_PROFILE selects a profile for one command, and profiles use selects it for all later commands.\n" +
			"A profile is created when you change a setting in it.",
		Example: "  holdfast --profile staging config set api https://staging.example.com\n" +
			"  holdfast --profile staging auth login\n  holdfast config profiles use staging",
		Args: cobra.NoArgs,
		RunE: a.Do(func(context.Context, *cobra.Command, []string) error {
			names, err := settings.Profiles()
			if err != nil {
				return err
			}
			current, err := settings.Profile()
			if err != nil {
				return err
			}
			t := &output.Table{Console: a.Console, Header: []string{"PROFILE", "API", "ORGANIZATION", "USED"}}
			for _, name := range names {
				values, err := settings.ProfileSettings(name)
				if err != nil {
					return err
				}
				used := ""
				if name == current {
					used = "yes"
				}
				t.Add([]string{name, cmp.Or(values["api"], "-"), cmp.Or(values["organization"], "-"), used})
			}
			return t.Flush()
		}),
	}
	cmd.AddCommand(&cobra.Command{
		Use: "use NAME", Short: "Use a profile from now on", Example: "  holdfast config profiles use default",
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names, _ := settings.Profiles() // errors are ignored, because completion prints none
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			if err := os.Setenv(settings.ProfileVariable, args[0]); err != nil {
				return err
			}
			if err := settings.RequireProfile(); err != nil {
				return err
			}
			if err := settings.UseProfile(args[0]); err != nil {
				return err
			}
			a.Note("using the profile %s", args[0])
			return nil
		}),
	})
	return cmd
}

func configUseDev(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "use-dev [FILE]", Short: "Use a server in development mode on this machine",
		Long: "Reads FILE (default data/dev.json), which holdfastd --dev writes into its data folder, sets api and\n" +
			"organization, and stores the token. The file is read again when the token expires.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.UseDev(ctx, append(args, "data/dev.json")[0])
		}),
	}
}
