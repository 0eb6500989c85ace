package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
)

// The exit codes. docs/cli.md lists them: they do not change.
const (
	exitOK              = 0
	exitError           = 1 // the server refused, or failed
	exitUsage           = 2 // the command line or the settings
	exitNo              = 3 // the answer of `iam can` is no
	exitUnauthenticated = 4
	exitDenied          = 5
	exitNotFound        = 6
	exitUnreachable     = 7
	exitInterrupted     = 130
)

// A problem is an error as a person is told it: one sentence, what to do about
// it, and the exit code.
type problem struct {
	text  string
	hints []string
	code  int
}

func (p *problem) Error() string { return p.text }

func newProblem(code int, format string, args ...any) *problem {
	return &problem{text: fmt.Sprintf(format, args...), code: code}
}

// usage is a mistake in the command line or the settings.
func usage(format string, args ...any) *problem { return newProblem(exitUsage, format, args...) }

// hint adds what the person can do about it.
func (p *problem) hint(hints ...string) *problem {
	p.hints = append(p.hints, hints...)
	return p
}

// problemOf tells what to say about any error.
func problemOf(ctx context.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return &problem{text: err.Error(), hints: p.hints, code: p.code} // with what was put before it
	}
	if ctx.Err() != nil {
		return newProblem(exitInterrupted, "interrupted")
	}
	return newProblem(exitError, "%s", err.Error())
}

// A refusal is what the server at an address answered a call with, or gRPC's
// word for no answer.
type refusal struct {
	api   string
	err   error
	flags map[string]string // the flag or argument that sets a field
}

// refused is the problem that a call failed with: the server's, or one there was
// before it.
func refused(err error, flags map[string]string) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		return refusal{e.Address, e, flags}.problem()
	}
	return newProblem(exitError, "%s", err.Error())
}

// problem says what the server said, and which flag to change.
func (r refusal) problem() *problem {
	said := status.Convert(r.err)
	if len(said.Details()) == 0 && said.Code() != codes.Unimplemented {
		return r.unanswered(said)
	}
	p := newProblem(exitError, "%s", said.Message())
	switch said.Code() {
	case codes.InvalidArgument:
		p.hints = r.violations()
	case codes.Unauthenticated:
		p.code = exitUnauthenticated
		p.hints = []string{"get a new token and put it in HOLDFAST_TOKEN, or in development run: holdfast config use-dev"}
	case codes.PermissionDenied:
		p.code = exitDenied
		p.hints = r.whoCan()
	case codes.NotFound:
		p.code = exitNotFound
	case codes.Unimplemented:
		p.hints = []string{"the server may be older than this client: compare them with holdfast version"}
	}
	return p
}

// violations has one hint for each field to change. The sentence has already
// told what is wrong with the first.
func (r refusal) violations() (hints []string) {
	bad, _ := holdfast.Detail[*errdetails.BadRequest](r.err)
	for i, v := range bad.GetFieldViolations() {
		name, _, _ := strings.Cut(v.GetField(), "[") // an element of a list or map
		flag := r.flags[name]
		switch {
		case i == 0 && flag != "":
			hints = append(hints, "set "+flag)
		case i > 0 && flag != "":
			hints = append(hints, "also set "+flag+": "+v.GetDescription())
		case i > 0:
			hints = append(hints, "also: "+v.GetField()+": "+v.GetDescription())
		}
	}
	return hints
}

// whoCan tells how to find somebody who may.
func (r refusal) whoCan() []string {
	info, _ := holdfast.Detail[*errdetails.ErrorInfo](r.err)
	capability, scope := info.GetMetadata()["capability"], info.GetMetadata()["scope"]
	if capability == "" || !isUID(scope) {
		return nil
	}
	return []string{"to see who may: holdfast iam who-can " + capability + " " + scope}
}

// unanswered is for a status that gRPC itself made: no answer came, or not from
// a server of this API. Its text is all there is to tell the cases apart.
func (r refusal) unanswered(said *status.Status) *problem {
	text := said.Message()
	p := newProblem(exitUnreachable, "%s", "cannot reach "+r.api+": "+reason(text))
	switch {
	case said.Code() == codes.Canceled:
		return newProblem(exitInterrupted, "interrupted")
	case said.Code() == codes.DeadlineExceeded:
		p.text = "no answer from " + r.api + " in time"
		p.hints = []string{"--timeout gives it longer"}
	case strings.Contains(text, "x509: "):
		_, why, _ := strings.Cut(text, "x509: ")
		p.text = "the certificate of " + r.api + " is not to be trusted: " + strings.TrimRight(why, `"`)
		p.hints = []string{"if it is your own authority's, give its certificate with --ca-file or: holdfast config set ca_file FILE"}
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		p.text = "the server at " + r.api + " does not speak TLS"
		p.hints = []string{"its address may begin with http://"}
	case strings.Contains(text, "server preface"):
		p.text = "the server at " + r.api + " does not answer as a Holdfast server does"
		p.hints = []string{"its address may begin with https://"}
	case said.Code() != codes.Unavailable:
		return newProblem(exitError, "%s", text)
	default:
		p.hints = []string{"see that the server runs, and where this command looks for it: holdfast config view"}
	}
	return p
}

// reason is the end of a chain of errors: the part that is not about gRPC.
func reason(text string) string {
	text = strings.TrimRight(text, `"`)
	if strings.Contains(text, "no such host") || strings.HasSuffix(text, "produced zero addresses") {
		return "its name has no address"
	}
	for _, about := range []string{"connect: ", "desc = \"", "transport: "} {
		if i := strings.LastIndex(text, about); i >= 0 {
			return text[i+len(about):]
		}
	}
	return text
}
