package server

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/server/installation"
	"github.com/holdfast-dev/holdfast/internal/server/maintenance"
)

// ownCommands are the commands that always run in this process, even if a server runs.
// The process may run as another user, who can write to places where the server cannot.
var ownCommands = map[string]func(ctx context.Context, cfg Config, args []string, out io.Writer) error{
	"backup":  maintenance.Backup,
	"restore": maintenance.Restore,
	"doctor":  maintenance.Doctor,
	"scrub":   runScrub,
}

// RunCommand runs the command that words name. It runs in the server that uses the
// data folder of cfg or, if there is none, in this process.
func RunCommand(ctx context.Context, cfg Config, words []string, out io.Writer) error {
	if len(words) > 0 {
		if run, ok := ownCommands[words[0]]; ok {
			return run(ctx, cfg.WithDefaults(), words[1:], out)
		}
	}
	if slices.Equal(words[:min(len(words), 2)], []string{"keys", "reset"}) {
		return maintenance.ResetKeys(ctx, cfg.WithDefaults(), words[2:], out)
	}
	path, args, ok := findCommand(words)
	if !ok {
		return fmt.Errorf("there is no command %s; see holdfastd --help", strings.Join(words, " "))
	}
	return perform(ctx, cfg.WithDefaults(), path, args, out)
}

// findCommand returns the command that words name, and its arguments.
func findCommand(words []string) (path string, args []string, ok bool) {
	for n := min(len(words), 2); n > 0; n-- {
		path := strings.Join(words[:n], "/")
		if _, ok := commands[path]; ok {
			return path, words[n:], true
		}
	}
	return "", nil, false
}

// commandFlags lists the flags that belong to one command, and whether each flag has a
// value.
var commandFlags = []struct {
	command, name string
	value         bool
}{
	{"gc", "dry-run", false}, {"restore", "verify", false}, {"restore", "at", true},
	{"backup", "keep", true}, {"doctor", "json", false}, {"scrub", "rate", true},
	{"owners", "organization", true}, {"owners", "email", true}, {"keys", installation.LostKeyFlag, false},
	{"organizations", "email", true}, {"organizations", "payer", true},
}

// SplitCommand separates the arguments of a command from the flags that are settings.
// A flag of the command becomes an argument: verify, or at=VALUE. words must not be
// empty.
func SplitCommand(words, flags []string) (command, settings []string) {
	command = slices.Clone(words)
next:
	for i := 0; i < len(flags); i++ {
		for _, f := range commandFlags {
			rest, ok := strings.CutPrefix(flags[i], "--"+f.name)
			value, inline := strings.CutPrefix(rest, "=")
			switch {
			case !ok || words[0] != f.command:
				continue
			case rest == "" && !f.value:
				command = append(command, f.name)
			case f.value && inline:
				command = append(command, f.name+"="+value)
			case f.value && rest == "" && i+1 < len(flags):
				i++
				command = append(command, f.name+"="+flags[i])
			default:
				continue
			}
			continue next
		}
		settings = append(settings, flags[i])
	}
	return command, settings
}
