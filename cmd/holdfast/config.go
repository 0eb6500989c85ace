package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// config is the commands about the settings of this program.
func (a *app) config() *cobra.Command {
	cmd := a.branch("config", "Show and change the settings of this command",
		a.configView(), a.configGet(), a.configSet(), a.configUnset(), a.configUseDev())
	var long strings.Builder
	long.WriteString("A setting is given by a flag, by a variable, or in the file, and the first of these wins.\n")
	for _, s := range allSettings() {
		fmt.Fprintf(&long, "\n  %-14s %-22s %s", s.key, s.variable(), s.about)
	}
	long.WriteString("\n\nHOLDFAST_TOKEN is the token to use. HOLDFAST_CONFIG names another file.")
	cmd.Long = long.String()
	return cmd
}

func completeSettings(*cobra.Command, []string, string) (all []string, _ cobra.ShellCompDirective) {
	for _, s := range allSettings() {
		all = append(all, s.key+"\t"+s.about)
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) configSet() *cobra.Command {
	return &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting in the file",
		Example: "  holdfast config set api https://holdfast.example.com",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeSettings,
		RunE: a.do(func(_ context.Context, _ *cobra.Command, args []string) error {
			s, err := findSetting(args[0])
			if err != nil {
				return err
			}
			if s.check != nil {
				if err := s.check(args[1]); err != nil {
					return usage("%s: %v", s.key, err)
				}
			}
			return changeSettings(func(values map[string]string) { values[s.key] = args[1] })
		}),
	}
}

func (a *app) configUnset() *cobra.Command {
	return &cobra.Command{
		Use: "unset KEY", Short: "Remove a setting from the file",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeSettings,
		RunE: a.do(func(_ context.Context, _ *cobra.Command, args []string) error {
			if _, err := findSetting(args[0]); err != nil {
				return err
			}
			return changeSettings(func(values map[string]string) { delete(values, args[0]) })
		}),
	}
}

func (a *app) configGet() *cobra.Command {
	return &cobra.Command{
		Use: "get KEY", Short: "Print a setting as it is now",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeSettings,
		RunE: a.do(func(_ context.Context, _ *cobra.Command, args []string) error {
			v, err := a.value(args[0])
			if err != nil {
				return err
			}
			if v.value == "" {
				return newProblem(exitNotFound, "%s is not set", args[0])
			}
			fmt.Fprintln(a.out, v.value)
			return nil
		}),
	}
}

func (a *app) configView() *cobra.Command {
	return &cobra.Command{
		Use: "view", Short: "Print every setting and where it comes from", Args: cobra.NoArgs,
		RunE: a.do(func(context.Context, *cobra.Command, []string) error {
			t := &table{console: a.console, header: []string{"SETTING", "VALUE", "FROM"}}
			for _, s := range allSettings() {
				v, err := a.value(s.key)
				if err != nil {
					return err
				}
				t.add([]string{s.key, cmp.Or(v.value, "-"), v.origin})
			}
			api, err := a.value("api")
			if err != nil {
				return err
			}
			if origin, err := a.tokenOrigin(api.value); err != nil {
				return err
			} else if origin != "" {
				t.add([]string{"token", "(hidden)", origin})
			}
			return t.flush()
		}),
	}
}

func (a *app) configUseDev() *cobra.Command {
	return &cobra.Command{
		Use: "use-dev [FILE]", Short: "Use a server in development mode on this machine",
		Long: "Reads the file that holdfastd --dev writes into its data folder (data/dev.json unless given), sets api and\n" +
			"organization to what it says, and keeps the token for you alone. When that expires, the file is read again.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.useDev(ctx, append(args, "data/dev.json")[0])
		}),
	}
}
