package signin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// A refusal is a failed call.
type refusal struct {
	api   string
	err   error
	flags map[string]string // flag or argument that sets a field, by field
	given given
}

// given are the flags and the arguments on the command line. The zero value has none.
type given struct {
	flags *pflag.FlagSet
	args  bool
}

type givenKey struct{}

// WithGiven returns a context with the flags and arguments on the command line, so that a hint does not ask for what is
// there.
func WithGiven(ctx context.Context, flags *pflag.FlagSet, args []string) context.Context {
	return context.WithValue(ctx, givenKey{}, given{flags, len(args) > 0})
}

// has reports whether a flag such as --ttl, or an argument such as NAME, is on the command line.
func (g given) has(word string) bool {
	if name, ok := strings.CutPrefix(word, "--"); ok {
		return g.flags != nil && g.flags.Changed(name)
	}
	return g.args && word == strings.ToUpper(word)
}

// hint returns what to do about a field that a flag or an argument sets, or "" if the message alone says that. Of a
// text such as "NAME; use --display-name", it returns the second part if NAME is given.
func (g given) hint(field, flag string) string {
	word, rest, _ := strings.Cut(flag, "; ")
	name := strings.ReplaceAll(strings.TrimLeft(word, "-"), "-", "_")
	switch {
	case !g.has(word):
		return "set " + flag
	case rest != "":
		return rest
	case strings.EqualFold(name, field[strings.LastIndex(field, ".")+1:]):
		return ""
	}
	return "change " + word
}

// Refused returns the problem for a failed call. flags contains the flag or argument that
// sets each field that the server may refuse.
func Refused(err error, flags map[string]string) *problem.Problem {
	return RefusedIn(context.Background(), err, flags)
}

// RefusedIn is Refused for a call of a command line that WithGiven has put in the context.
func RefusedIn(ctx context.Context, err error, flags map[string]string) *problem.Problem {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		words, _ := ctx.Value(givenKey{}).(given)
		return refusal{e.Address, e, flags, words}.problem()
	}
	return problem.New(problem.ExitError, "%s", err.Error())
}

// problem returns the server's message, with a hint about the flag to change.
func (r refusal) problem() *problem.Problem {
	said := status.Convert(r.err)
	if len(said.Details()) == 0 && said.Code() != codes.Unimplemented {
		return r.unanswered(said)
	}
	p := problem.New(problem.ExitError, "%s", said.Message())
	switch said.Code() {
	case codes.InvalidArgument:
		p.Hints = r.violations()
	case codes.Unauthenticated:
		p.Code = problem.ExitUnauthenticated
		p.Hints = []string{"get a new token and put it in HOLDFAST_TOKEN, or in development run: holdfast config use-dev"}
	case codes.PermissionDenied:
		p.Code = problem.ExitDenied
		p.Hints = r.whoCan()
	case codes.NotFound:
		p.Code = problem.ExitNotFound
	case codes.Unimplemented:
		p.Hints = []string{"the server may be older than this client: compare them with holdfast version"}
	}
	return p
}

// violations returns a hint for each invalid field. The hint for the first field omits
// the description, because the message contains it.
func (r refusal) violations() (hints []string) {
	bad, _ := holdfast.Detail[*errdetails.BadRequest](r.err)
	for i, v := range bad.GetFieldViolations() {
		name, _, _ := strings.Cut(v.GetField(), "[") // name of the field without the index of a list or map
		flag := r.flags[name]
		switch {
		case i == 0 && flag != "":
			if hint := r.given.hint(name, flag); hint != "" {
				hints = append(hints, hint)
			}
		case i > 0 && flag != "" && r.given.has(flag):
			hints = append(hints, "also change "+flag+": "+v.GetDescription())
		case i > 0 && flag != "":
			hints = append(hints, "also set "+flag+": "+v.GetDescription())
		case i > 0:
			hints = append(hints, "also: "+v.GetField()+": "+v.GetDescription())
		}
	}
	return hints
}

// whoCan returns the command that lists the identities with the capability.
func (r refusal) whoCan() []string {
	info, _ := holdfast.Detail[*errdetails.ErrorInfo](r.err)
	capability, scope := info.GetMetadata()["capability"], info.GetMetadata()["scope"]
	if capability == "" || !settings.IsUID(scope) {
		return nil
	}
	return []string{"to see who may: holdfast iam who-can " + capability + " " + scope}
}

// unanswered returns the problem for a status that gRPC itself has created, because no
// server of this API has answered. The text of the status is the only way to distinguish
// the cases.
func (r refusal) unanswered(said *status.Status) *problem.Problem {
	text := said.Message()
	p := problem.New(problem.ExitUnreachable, "%s", "cannot reach "+r.api+": "+reason(text))
	switch {
	case said.Code() == codes.Canceled:
		return problem.New(problem.ExitInterrupted, "interrupted")
	case said.Code() == codes.DeadlineExceeded:
		p.Text = "no answer from " + r.api + " in time"
		p.Hints = []string{"use --timeout to wait longer"}
	case strings.Contains(text, "x509: "):
		_, why, _ := strings.Cut(text, "x509: ")
		p.Text = "the certificate of " + r.api + " is not trusted: " + strings.TrimRight(why, `"`)
		p.Hints = []string{"if your own authority has issued it, use --ca-file with its certificate, or: " +
			"holdfast config set ca_file FILE"}
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		p.Text = "the server at " + r.api + " does not use TLS"
		p.Hints = []string{"the address may have to start with http://"}
	case strings.Contains(text, "server preface"):
		p.Text = "the server at " + r.api + " does not answer as a Holdfast server does"
		p.Hints = []string{"the address may have to start with https://"}
	case said.Code() != codes.Unavailable:
		return problem.New(problem.ExitError, "%s", text)
	default:
		p.Hints = []string{"check that the server is running, and its address: holdfast config view"}
	}
	return p
}

// reason returns the last part of a chain of errors, without the parts about gRPC.
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

// A Method is a method of a generated client.
type Method[Request, Response any] = func(context.Context, Request, ...grpc.CallOption) (Response, error)

// Call calls a method of a generated client. Its error is a problem. Each element of
// flags has the form field=flag, such as "name=--name", for a field that the server may
// refuse.
func Call[Request, Response any](
	ctx context.Context, method Method[Request, Response], req Request, flags ...string,
) (Response, error) {
	resp, err := method(ctx, req)
	if err == nil {
		return resp, nil
	}
	named := map[string]string{}
	for _, spec := range flags {
		field, flag, _ := strings.Cut(spec, "=")
		named[field] = flag
	}
	return resp, RefusedIn(ctx, err, named)
}
