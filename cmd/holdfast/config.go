package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
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
				return &problem{text: args[0] + " is not set", code: exitNotFound}
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
			t := &table{app: a, header: []string{"SETTING", "VALUE", "FROM"}}
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
			token, origin, err := a.token(canonical(api.value))
			if err != nil {
				return err
			}
			if token != "" {
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
			"organization to what it says, and keeps the token, readable for you alone, beside the settings.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.do(func(_ context.Context, _ *cobra.Command, args []string) error {
			return a.useDev(append(args, "data/dev.json")[0])
		}),
	}
}

func (a *app) useDev(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		p := usage("%v", err)
		p.hints = []string{"a server that runs as holdfastd --dev writes it into its data folder"}
		return p
	}
	var dev struct {
		BaseURL         string `json:"baseUrl"`
		OrganizationUID string `json:"organizationUid"`
		Token           string `json:"token"`
	}
	if json.Unmarshal(text, &dev) != nil || checkAddress(dev.BaseURL) != nil || dev.Token == "" { // an error may quote the token
		return usage("%s is not a file that holdfastd --dev has written", path)
	}
	if err := storeToken(canonical(dev.BaseURL), dev.Token); err != nil {
		return err
	}
	err = changeSettings(func(values map[string]string) {
		values["api"] = dev.BaseURL
		values["organization"] = dev.OrganizationUID
	})
	if err != nil {
		return err
	}
	a.note("using %s", dev.BaseURL)
	return nil
}
