// Package fault defines the errors that are reported to clients.
//
// A fault carries the parts that a client may see: a code, a sentence, and typed
// details. The cause it wraps is only logged. Any error that is not a fault is
// a bug or an outage, and clients see it as Internal without details.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Code is a google.rpc.Code. It is itself an error, so that callers can write
// errors.Is(err, fault.NotFound).
type Code int

// These are the codes that the service returns.
const (
	Canceled           Code = 1
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	Unauthenticated    Code = 16
)

var reasons = map[Code]string{
	Canceled: "CANCELLED", InvalidArgument: "INVALID_ARGUMENT", DeadlineExceeded: "DEADLINE_EXCEEDED",
	NotFound: "NOT_FOUND", AlreadyExists: "ALREADY_EXISTS", PermissionDenied: "PERMISSION_DENIED",
	ResourceExhausted: "RESOURCE_EXHAUSTED", FailedPrecondition: "FAILED_PRECONDITION", Aborted: "ABORTED",
	Unimplemented: "UNIMPLEMENTED", Internal: "INTERNAL", Unavailable: "UNAVAILABLE",
	Unauthenticated: "UNAUTHENTICATED",
}

func (c Code) Error() string { return fmt.Sprintf("code %d", int(c)) }

// Reason returns the code's name in ErrorInfo.
func (c Code) Reason() string { return reasons[c] }

// Name returns the code's name in logs and metrics: OK for 0, and UNKNOWN for a
// code that the service does not return.
func (c Code) Name() string {
	if c == 0 {
		return "OK"
	}
	return cmp.Or(reasons[c], "UNKNOWN")
}

// An Error is a failure that is reported to the client.
type Error struct {
	Code     Code
	Message  string
	Metadata map[string]string // details for programs, in ErrorInfo
	Fields   []Violation       // request fields that must be changed
	Unmet    []Violation       // preconditions that do not hold
	Resource *Resource         // the resource that is missing, or that exists already
	Quota    *Quota            // the quota that is used up
	RetryIn  time.Duration     // how long to wait before the next try; 0 if unknown
	Cause    error             // logged, never sent
}

// A Violation is one mistake. Subject is a field path or a violation type.
type Violation struct{ Subject, Description string }

// A Resource names the resource that an error is about.
type Resource struct{ Type, Name string }

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Cause }

// Is makes a fault match its code: errors.Is(err, fault.NotFound).
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// A Quota is a limit that a request would exceed.
type Quota struct {
	Metric      string // the metric that is limited
	Subject     string // the resource that has the limit; "" if the client may not know it
	Description string
	Used, Limit int64
	Known       bool // whether the client may know Used and Limit
}

// OverQuota reports that a request would exceed a quota.
func OverQuota(q Quota) *Error {
	e := &Error{Code: FailedPrecondition, Message: "Precondition failed: " + q.Description, Quota: &q,
		Metadata: map[string]string{"budget": q.Metric}}
	if q.Known {
		e.Metadata["used"], e.Metadata["limit"] = strconv.FormatInt(q.Used, 10), strconv.FormatInt(q.Limit, 10)
	}
	return e
}

// TooOften reports that a caller has made too many requests and when to try again.
func TooOften(q Quota, retryIn time.Duration) *Error {
	e := OverQuota(q)
	e.Code, e.Message, e.RetryIn = ResourceExhausted, "Resource exhausted: "+q.Description, retryIn
	return e
}

// New returns a fault with no details.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Field reports a request field that cannot be accepted.
func Field(name, format string, args ...any) *Error {
	return Fields([]Violation{{name, fmt.Sprintf(format, args...)}})
}

// Fields reports every request field that cannot be accepted. Its message is
// the description of the first one. It returns nil if there are none.
func Fields(all []Violation) *Error {
	if len(all) == 0 {
		return nil
	}
	return &Error{
		Code:    InvalidArgument,
		Message: fmt.Sprintf("Invalid argument: %s: %s", all[0].Subject, all[0].Description),
		Fields:  all,
	}
}

// Missing reports that there is no resource with that type and name.
func Missing(kind, name string) *Error {
	return &Error{Code: NotFound, Message: fmt.Sprintf("Not found: %s %s", kind, name),
		Resource: &Resource{kind, name}}
}

// Exists reports that there is already a resource with that type and name.
func Exists(kind, name string) *Error {
	return &Error{
		Code:     AlreadyExists,
		Message:  fmt.Sprintf("Already exists: %s named %q", kind, name),
		Resource: &Resource{kind, name},
	}
}

// Denied reports that the caller lacks a capability on a scope.
func Denied(capability, scope string) *Error {
	return &Error{
		Code:     PermissionDenied,
		Message:  fmt.Sprintf("Permission denied: %s on %s", capability, scope),
		Metadata: map[string]string{"capability": capability, "scope": scope},
	}
}

// NotEmpty reports that parent cannot be deleted while it contains resources of
// these kinds.
func NotEmpty(parent string, kinds ...string) *Error {
	return undeletable("RESOURCE_NOT_EMPTY", "cannot delete "+parent+" with child ", kinds)
}

// InUse reports that a resource cannot be deleted while resources of these kinds refer to it.
func InUse(what string, kinds ...string) *Error {
	return undeletable("RESOURCE_IN_USE", "cannot delete "+what+" used by ", kinds)
}

func undeletable(violation, text string, kinds []string) *Error {
	e := &Error{Code: FailedPrecondition, Message: "Precondition failed: " + text + strings.Join(kinds, ", ")}
	for _, kind := range kinds {
		e.Unmet = append(e.Unmet, Violation{violation, text + kind})
	}
	return e
}

// Unmet reports that a precondition of a request does not hold.
func Unmet(kind, format string, args ...any) *Error {
	text := fmt.Sprintf(format, args...)
	return &Error{Code: FailedPrecondition, Message: "Precondition failed: " + text, Unmet: []Violation{{kind, text}}}
}

// Outage reports that a system that the service needs cannot be reached now.
func Outage(what string, cause error) *Error {
	return unavailable(what+" cannot be used right now", cause)
}

// Overdue reports that a system that the service needs has not answered within limit.
func Overdue(limit time.Duration, cause error) *Error {
	return unavailable(fmt.Sprintf("no answer within %s", limit), cause)
}

func unavailable(text string, cause error) *Error {
	return &Error{Code: Unavailable, Message: "Unavailable: " + text + "; try again", RetryIn: time.Second,
		Cause: cause}
}

// Explain returns the text of err followed by the causes that its faults hide.
// It is meant for operators, not for clients.
func Explain(err error) string {
	text := err.Error()
	for {
		var f *Error
		if !errors.As(err, &f) || f.Cause == nil {
			return text
		}
		if err = f.Cause; !strings.Contains(text, err.Error()) { // a cause may have the same text
			text += ": " + err.Error()
		}
	}
}

// From returns err if it is a fault, and otherwise a fault with err as its cause. The
// code of that fault is Internal, or the code for a canceled or expired context.
func From(err error) *Error {
	var f *Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return &Error{Code: Canceled, Message: "Cancelled: the caller went away", Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: DeadlineExceeded, Message: "Deadline exceeded: the request took too long", Cause: err}
	}
	return &Error{Code: Internal, Message: "Internal error", Cause: err}
}
