// Command holdfast is the client of a Holdfast server.
//
// This package contains the root command and the commands about the program itself. The
// other commands are in internal/iam, registry, advisories, events and auth. Most of them
// are tables from which internal/noun makes commands. internal/signin selects the
// identity that the commands use, and internal/output prints the results.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/advisories"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/auth"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/events"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/inventory"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/kubernetes"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // after the first signal, a second signal kills the process
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == auth.HelperName { // Docker has started this program as its credential helper
		args = append([]string{"credential-helper"}, args...)
	}
	os.Exit(run(ctx, args))
}

// run runs the command of args and returns the exit code.
func run(ctx context.Context, args []string) int {
	return runWith(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

func runWith(ctx context.Context, args []string, in, out, errs *os.File) int {
	a := noun.NewApp(in, out, errs)
	root := root(a)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquote(root)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.End(cmd, err)
}

// root returns the root command, which contains all other commands.
func root(a *noun.App) *cobra.Command {
	root := a.Branch("holdfast", "Manage a Holdfast server from the command line",
		manual(a), auth.CredentialHelper(a))
	group(root, "start", "Start here:", auth.Login(a), auth.Logout(a), auth.WhoAmI(a), auth.Command(a), config(a))
	group(root, "manage", "Manage:", iam.Search(a), iam.Command(a), iam.Access(a), orgfile.Command(a), registry.Command(a),
		registry.Findings(a), registry.Packages(a), inventory.Command(a), kubernetes.Command(a), advisories.Command(a),
		events.Command(a), events.Audit(a))
	group(root, "tools", "Tools:", apiCommand(a), iam.Dev(a), operatorCommand(a), versionCommand(a))
	root.SetHelpCommandGroupID("tools")
	root.SetCompletionCommandGroupID("tools")
	root.SetFlagErrorFunc(suggestFlag)
	root.Long = "Manage access, container images and vulnerability advisories of an organization.\n\n" +
		"To start, set the address of the server and sign in:\n\n" +
		"  holdfast config set api https://holdfast.example.com\n  holdfast login\n\n" +
		"For a server in development mode on this machine: holdfast config use-dev"
	root.Version = buildinfo.Read().String()
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	f := root.PersistentFlags()
	f.StringVar(a.Flag("api"), "api", "", "`ADDRESS` of the server, http(s)://host[:port]")
	var profile string
	f.StringVar(&profile, "profile", "", "`NAME` of the settings and session to use: see holdfast config profiles")
	var expression, color string
	f.StringVar(&expression, "jq", "", "print the result of the jq `EXPRESSION` for the JSON; strings without quotes")
	f.StringVar(&color, "color", output.Colors[0], "`WHEN` to use colors: auto (on a terminal), always or never")
	noun.CompleteWords(root, "color", output.Colors)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(a.SetColor(color), query(a, cmd, expression)); err != nil {
			return err
		}
		if profile != "" {
			if err := os.Setenv(settings.ProfileVariable, profile); err != nil {
				return err
			}
		}
		if strings.HasPrefix(cmd.CommandPath(), "holdfast config") {
			return nil // the profile need not exist, because these commands can create it
		}
		return settings.RequireProfile()
	}
	noun.CompleteNames(root, "profile", settings.Profiles)
	f.StringVarP(a.Flag("output"), "output", "o", "", "output `FORMAT`: table, wide, json, yaml, csv or id")
	f.StringSliceVar(&a.Columns, "columns", nil, "`FIELDS` to show in a table or CSV, such as name,uid,createTime")
	f.StringVar(a.Flag("token_file"), "token-file", "", "`FILE` with the token to use")
	f.StringVar(a.Flag("ca_file"), "ca-file", "", "`FILE` of certificates (PEM) to trust in addition to the system's")
	f.BoolFunc("insecure", "send tokens without encryption (http://) to a server on another machine",
		func(text string) error { *a.Flag("insecure") = text; return nil })
	f.BoolVarP(&a.Verbose, "verbose", "v", false, "print the method, duration and request id of every call")
	f.DurationVar(&a.Timeout, "timeout", 30*time.Second, "`DURATION` after which a call fails")
	noun.CompleteWords(root, "output", output.Formats)
	addExamples(root)
	noun.ExplainArguments(root)
	shortenHelp(a, root)
	return root
}

// shortenHelp replaces the list of global flags in the help of each subcommand by one line, because every help text
// would repeat it.
func shortenHelp(a *noun.App, root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			help(cmd, args)
			return
		}
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(cmd, args)
		fmt.Fprintln(a.Out, "\nFlags of all commands, such as --output, --jq and --profile: holdfast --help")
	})
}

// query makes a command print the result of a jq expression, if there is one.
func query(a *noun.App, cmd *cobra.Command, expression string) error {
	format := a.Flag("output")
	switch {
	case !cmd.Flags().Changed("jq"):
		return nil
	case *format != "" && *format != "json":
		return problem.Usage("--jq needs -o json: it cannot be used with -o %s", *format)
	case len(a.Columns) > 0:
		return problem.Usage("--jq and --columns cannot be used together")
	}
	*format = "json"
	return a.Query(expression)
}

// group adds commands to root under a heading in the help.
func group(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

// unquote removes the quotes that mark the name of a value in the help of flags, because
// completion would show them.
func unquote(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, sub := range cmd.Commands() {
		unquote(sub)
	}
}

// suggestFlag adds a hint to an unknown-flag error: the existing flag with the most
// similar name.
func suggestFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := noun.Nearest(unknown.GetSpecifiedName(), names)
	if near == "" || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	return problem.Usage("%s", err.Error()).Hint("did you mean --" + near)
}
