package noun

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// ExplainArguments makes cmd and its subcommands name the arguments that are missing or not expected. (cobra only
// counts them: "accepts 1 arg(s), received 0".)
func ExplainArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return explainArguments(cmd, args, err)
		}
	}
	for _, sub := range cmd.Commands() {
		ExplainArguments(sub)
	}
}

// explainArguments returns the problem with the number of arguments. err is the error of cobra.
func explainArguments(cmd *cobra.Command, args []string, err error) error {
	all, required := argumentsOf(cmd.Use)
	switch {
	case len(args) < len(required):
		missing := required[len(args):]
		verb := " is missing"
		if len(missing) > 1 {
			verb = " are missing"
		}
		return problem.Usage("%s", enumerate(missing)+verb)
	case len(args) > len(all):
		return problem.Usage("unexpected argument %q", args[len(all)])
	}
	return err
}

// argumentsOf returns the names of the arguments in the usage of a command, and those that are required. A name in
// brackets is optional, and flags are not arguments.
func argumentsOf(use string) (all, required []string) {
	words := strings.Fields(use)[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case strings.HasPrefix(word, "--"):
			i++ // the value of the flag
		case strings.HasPrefix(word, "["):
			all = append(all, strings.Trim(word, "[]."))
		default:
			word = strings.TrimSuffix(word, "...")
			all, required = append(all, word), append(required, word)
		}
	}
	return all, required
}

// enumerate returns names as text, such as "A, B and C".
func enumerate(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
