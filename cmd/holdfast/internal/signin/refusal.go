package signin

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// A refusal is what the server at an address answered a call with, or gRPC's
// word for no answer.
type refusal struct {
	api   string
	err   error
	flags map[string]string // the flag or argument that sets a field
}

// Refused is the problem that a call failed with: the server's, or one there was
// before it.
func Refused(err error, flags map[string]string) *problem.Problem {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		return refusal{e.Address, e, flags}.problem()
	}
	return problem.New(problem.ExitError, "%s", err.Error())
}

// problem says what the server said, and which flag to change.
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
	if capability == "" || !settings.IsUID(scope) {
		return nil
	}
	return []string{"to see who may: holdfast iam who-can " + capability + " " + scope}
}

// unanswered is for a status that gRPC itself made: no answer came, or not from
// a server of this API. Its text is all there is to tell the cases apart.
func (r refusal) unanswered(said *status.Status) *problem.Problem {
	text := said.Message()
	p := problem.New(problem.ExitUnreachable, "%s", "cannot reach "+r.api+": "+reason(text))
	switch {
	case said.Code() == codes.Canceled:
		return problem.New(problem.ExitInterrupted, "interrupted")
	case said.Code() == codes.DeadlineExceeded:
		p.Text = "no answer from " + r.api + " in time"
		p.Hints = []string{"--timeout gives it longer"}
	case strings.Contains(text, "x509: "):
		_, why, _ := strings.Cut(text, "x509: ")
		p.Text = "the certificate of " + r.api + " is not to be trusted: " + strings.TrimRight(why, `"`)
		p.Hints = []string{"if it is your own authority's, give its certificate with --ca-file or: holdfast config set ca_file FILE"}
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		p.Text = "the server at " + r.api + " does not speak TLS"
		p.Hints = []string{"its address may begin with http://"}
	case strings.Contains(text, "server preface"):
		p.Text = "the server at " + r.api + " does not answer as a Holdfast server does"
		p.Hints = []string{"its address may begin with https://"}
	case said.Code() != codes.Unavailable:
		return problem.New(problem.ExitError, "%s", text)
	default:
		p.Hints = []string{"see that the server runs, and where this command looks for it: holdfast config view"}
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

// Call calls a method of a generated client. Its error is a problem; flags
// names the flag that sets each field which the server may refuse.
func Call[Request, Response any](
	ctx context.Context, method func(context.Context, Request, ...grpc.CallOption) (Response, error),
	req Request, flags map[string]string,
) (resp Response, err error) {
	if resp, err = method(ctx, req); err != nil {
		err = Refused(err, flags)
	}
	return resp, err
}
