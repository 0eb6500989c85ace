package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
)

// TestHelp: every command that can run has an example that contains its name. The help of
// the root command is divided into groups.
func TestHelp(t *testing.T) {
	root := root(noun.NewApp(os.Stdin, os.Stdout, os.Stderr))
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if !cmd.HasParent() {
			return
		}
		if strings.HasPrefix(cmd.Short, "Manage ") {
			t.Errorf("%s: %q does not say what it is for", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
			return
		}
		checkFlags(t, root, cmd.Example)
		if !strings.Contains(cmd.Example, cmd.CommandPath()) && !strings.Contains(cmd.Example, "holdfast --profile") {
			t.Errorf("the example of %s does not call it: %s", cmd.CommandPath(), cmd.Example)
		}
	}
	visit(root)
	for path := range examples {
		if cmd, rest, err := root.Find(strings.Fields(path)); err != nil || len(rest) > 0 ||
			cmd.CommandPath() != "holdfast "+path {
			t.Errorf("there is an example of %s, but no such command", path)
		}
	}
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.GroupID == "" {
			t.Errorf("%s is in no group", cmd.CommandPath())
		}
	}
}

// checkFlags checks that an example uses only existing flags.
func checkFlags(t *testing.T, root *cobra.Command, example string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(example, "\\\n", " "), "\n") {
		_, line, _ = strings.Cut(line, "holdfast ")
		line, _, _ = strings.Cut(line, " | ")
		words := strings.Fields(line)
		cmd, rest, err := root.Find(words)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, word := range rest {
			name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if strings.HasPrefix(word, "--") && name != "help" && cmd.Flags().Lookup(name) == nil &&
				cmd.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: there is no --%s", line, name)
			}
		}
	}
}
