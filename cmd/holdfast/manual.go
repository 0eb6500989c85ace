package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// manual returns the command that writes the manual pages, for packagers.
func manual(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writePages(cmd.Root(), args[0])
		}),
	}
}

func writePages(cmd *cobra.Command, dir string) error {
	if !cmd.IsAvailableCommand() && cmd.HasParent() {
		return nil
	}
	file := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	if err := os.WriteFile(file, []byte(manualPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if err := writePages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// manualPage returns the page of one command.
func manualPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %q 1 \"\" \"holdfast %s\"\n", strings.ToUpper(name), buildinfo.Version())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(cmd.Long))
	}
	writeFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	writeFlags(&b, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(related(cmd), " ,\n"))
	return b.String()
}

// related returns references to the pages of the parent and the subcommands of cmd.
func related(cmd *cobra.Command) (pages []string) {
	commands := cmd.Commands()
	if cmd.HasParent() {
		commands = append([]*cobra.Command{cmd.Parent()}, commands...)
	}
	for _, c := range commands {
		if c.IsAvailableCommand() || !c.HasParent() {
			pages = append(pages, ".BR "+roff(strings.ReplaceAll(c.CommandPath(), " ", "-"))+" (1)")
		}
	}
	return pages
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		value, help := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(name+" "+value)), roff(help))
	})
}

// roff escapes text for a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
