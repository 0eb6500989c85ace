// Package problem defines errors for people: a sentence, hints on what to do, and the
// exit code.
package problem

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes. docs/cli.md lists them, so they must not change.
const (
	ExitOK              = 0
	ExitError           = 1 // the server refused the call or failed
	ExitUsage           = 2 // mistake in the command line or the settings
	ExitNo              = 3 // the result of a question, such as iam can, is no
	ExitUnauthenticated = 4
	ExitDenied          = 5
	ExitNotFound        = 6
	ExitUnreachable     = 7
	ExitInterrupted     = 130
)

// A Problem is an error with hints on what to do and the exit code.
type Problem struct {
	Text  string
	Hints []string
	Code  int
}

// Error returns the sentence.
func (p *Problem) Error() string { return p.Text }

// New returns a problem.
func New(code int, format string, args ...any) *Problem {
	return &Problem{Text: fmt.Sprintf(format, args...), Code: code}
}

// Usage returns a problem with the command line or the settings.
func Usage(format string, args ...any) *Problem { return New(ExitUsage, format, args...) }

// Hint adds hints on what the person can do about the problem, and returns p.
func (p *Problem) Hint(hints ...string) *Problem {
	p.Hints = append(p.Hints, hints...)
	return p
}

// From returns the problem for any error.
func From(ctx context.Context, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return &Problem{Text: err.Error(), Hints: p.Hints, Code: p.Code} // keeps the text that wrapping has added
	}
	if ctx.Err() != nil {
		return New(ExitInterrupted, "interrupted")
	}
	return New(ExitError, "%s", err.Error())
}

// Must panics on an error that only a mistake in this program can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
