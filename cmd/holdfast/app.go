package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// An app is what every command shares.
type app struct {
	*agent
	chosen  []string // columns to show in place of the usual ones
	started bool     // the command line was understood
}

func newApp(in, out, err *os.File) *app {
	return &app{agent: &agent{console: newConsole(in, out, err), settings: &settings{}}}
}

// root is the whole command line.
func (a *app) root() *cobra.Command {
	root := a.branch("holdfast", "Manage a Holdfast server from the command line",
		a.auth(), a.iam(), a.registry(), a.advisories(), a.events(), a.audit(), a.config(), a.dev(), a.version(), a.manual(), a.credentialHelper())
	root.Long = "Manage who may do what in an organization, the images it runs, and what is known of their vulnerabilities.\n\n" +
		"To begin, tell it where the server is: holdfast config set api https://holdfast.example.com,\n" +
		"and sign in: holdfast auth login; or, beside a server in development mode: holdfast config use-dev"
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVar(&a.settings.api, "api", "", "`ADDRESS` of the server, http(s)://host[:port]")
	f.StringVarP(&a.settings.output, "output", "o", "", "`FORMAT` of results: table, wide, json, yaml, csv or id")
	f.StringSliceVar(&a.chosen, "columns", nil, "`FIELDS` to show in a table or CSV, such as name,uid,createTime")
	f.StringVar(&a.settings.tokenFile, "token-file", "", "`FILE` that holds the token to use")
	f.StringVar(&a.settings.caFile, "ca-file", "", "`FILE` of certificates (PEM) to trust beside the system's")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "tell of every call: its method, duration and request id")
	f.DurationVar(&a.timeout, "timeout", 30*time.Second, "`DURATION` after which a call is given up")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	return root
}

// must is for what only a mistake in this program can make fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// iam is the commands of identity and access management.
func (a *app) iam() *cobra.Command {
	cmd := a.branch("iam", "Manage groups, identities, roles and who holds them")
	for _, n := range nouns() {
		cmd.AddCommand(a.noun(n))
	}
	cmd.AddCommand(a.tree(), a.can(), a.whoCan(), a.issuers(), a.accounts())
	return cmd
}

// nouns are the resources with commands of their own.
func nouns() []noun {
	return []noun{
		groups(), identities(), roles(), roleBindings(),
		identityProviders(), accountAssociations(), invites(), groupMappings(),
	}
}

// branch is a command that only has others below it. Cobra itself answers a
// misspelt one below the first level with the help and success.
func (a *app) branch(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			p := usage("unknown command %q for %q", args[0], cmd.CommandPath())
			p.hints = []string{"see " + cmd.CommandPath() + " --help"}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				p.hints = []string{"did you mean " + near[0]}
			}
			return p
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// A task is the body of a command.
type task func(ctx context.Context, cmd *cobra.Command, args []string) error

// do makes a task a command's RunE. What went wrong before it began is a
// mistake in the command line.
func (a *app) do(t task) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return t(cmd.Context(), cmd, args)
	}
}

// ask makes a task that calls the server a command's RunE. Without a token it
// does not begin.
func (a *app) ask(t task) func(*cobra.Command, []string) error {
	return a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if _, err := a.client(ctx); err != nil {
			return err
		}
		return t(ctx, cmd, args)
	})
}

// end writes what is left to write, tells what went wrong, and returns the exit
// code.
func (a *app) end(cmd *cobra.Command, err error) int {
	if a.conn != nil {
		a.conn.Close()
	}
	if flushed := a.out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("write the result: %w", flushed)
	}
	if err == nil {
		return exitOK
	}
	p := problemOf(cmd.Context(), err)
	if !a.started {
		p.code = exitUsage
	}
	if !a.started && len(p.hints) == 0 {
		p.hints = []string{"usage: " + cmd.UseLine()}
	}
	if p.text != "" {
		a.note("%s", p.text)
	}
	for _, hint := range p.hints {
		a.note("hint: %s", hint)
	}
	return p.code
}

// clientVersion is the module version the program was built from, or the
// revision.
func clientVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "(devel)" {
		return cmp.Or(info.Main.Version, "devel")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
