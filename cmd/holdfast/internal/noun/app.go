package noun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
)

// An App is the state that all commands share.
type App struct {
	*signin.Agent
	Columns []string // columns to print instead of the columns of the view
	started bool     // whether the command line was valid and the task has started
}

// NewApp returns an App without settings.
func NewApp(in, out, err *os.File) *App {
	return &App{Agent: &signin.Agent{Console: output.NewConsole(in, out, err), Settings: &settings.Settings{}}}
}

// Branch returns a command that only has subcommands. An unknown subcommand is an error.
// (cobra itself would print the help and succeed.)
func (a *App) Branch(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			p := problem.Usage("unknown command %q for %q", args[0], cmd.CommandPath())
			p.Hints = []string{"see " + cmd.CommandPath() + " --help"}
			var names []string
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			if near := Nearest(args[0], names); near != "" {
				p.Hints = []string{"did you mean " + near}
			}
			return p
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// A task is the body of a command.
type task func(ctx context.Context, cmd *cobra.Command, args []string) error

// Do returns a RunE that runs a task. An error before the task starts is a mistake in the
// command line.
func (a *App) Do(t task) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return t(signin.WithGiven(cmd.Context(), cmd.Flags(), args), cmd, args)
	}
}

// Ask returns a RunE that gets a token for the server and then runs a task.
func (a *App) Ask(t task) func(*cobra.Command, []string) error {
	return a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if err := a.Connect(ctx); err != nil {
			return err
		}
		return t(ctx, cmd, args)
	})
}

// MistakeCode is the annotation of a command for which problem.ExitUsage has another meaning:
// the exit code for mistakes in the command line.
const MistakeCode = "mistake-code"

// End flushes the output, prints the error, and returns the exit code.
func (a *App) End(cmd *cobra.Command, err error) int {
	defer a.Close() // deferred, because nameUIDs below may still use the connection
	verdict, _ := errors.AsType[*problem.Problem](err)
	// A problem that has an exit code but no text is a result, not a failure.
	failed := err != nil && (verdict == nil || verdict.Text != "")
	if written := a.Answer(cmd.Context(), failed); written != nil && !failed {
		err = fmt.Errorf("write the result: %w", written)
		if p, ok := errors.AsType[*problem.Problem](written); ok {
			err = p
		}
	}
	if err == nil {
		return problem.ExitOK
	}
	p := problem.From(cmd.Context(), err)
	if !a.started {
		p.Code = problem.ExitUsage
		if code, err := strconv.Atoi(cmd.Annotations[MistakeCode]); err == nil {
			p.Code = code
		}
	}
	if !a.started && len(p.Hints) == 0 {
		p.Hints = []string{"usage: " + cmd.UseLine()}
	}
	if a.started {
		a.nameUIDs(cmd.Context(), p)
	}
	if p.Text != "" {
		a.Fail(p.Text)
	}
	for _, hint := range p.Hints {
		a.Note("hint: %s", hint)
	}
	return p.Code
}

// printer returns the printer for the output format in the settings.
func (a *App) printer(
	ctx context.Context, v output.View, d protoreflect.MessageDescriptor, many bool,
) (output.Printer, error) {
	format, err := a.Value("output")
	if err != nil {
		return nil, err
	}
	return output.NewPrinter(a.Console, format.Text, a.Columns, v, d, many, a.names(ctx))
}

// Show prints one message.
func (a *App) Show(ctx context.Context, v output.View, m proto.Message) error {
	return printAll(ctx, a, v, false, []proto.Message{m}, m)
}

// ShowAll prints messages as a list.
func ShowAll[T proto.Message](ctx context.Context, a *App, v output.View, messages []T) error {
	var zero T
	return printAll(ctx, a, v, true, messages, zero)
}

func printAll[T proto.Message](
	ctx context.Context, a *App, v output.View, many bool, messages []T, like T,
) error {
	p, err := a.printer(ctx, v, like.ProtoReflect().Descriptor(), many)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := p.Add(m.ProtoReflect()); err != nil {
			return err
		}
	}
	return p.Close()
}

// ShowAnswer prints a message that contains rows. JSON and YAML print the message. CSV
// and id print the rows. A table prints the rows, unless say is not nil: then say prints
// the message.
func ShowAnswer[T proto.Message](
	ctx context.Context, a *App, v output.View, m proto.Message, rows []T, say func(),
) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	switch format.Text {
	case "json", "yaml":
		return a.Show(ctx, v, m)
	case "", "table", "wide":
		if say != nil {
			say()
			return nil
		}
	}
	return ShowAll(ctx, a, v, rows)
}
