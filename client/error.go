package client

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// An Error is a call that failed: what a server answered, or gRPC's word for
// that it did not. errors.As finds it, status.Code its code, and errors.Is tells
// context.Canceled and context.DeadlineExceeded.
type Error struct {
	Address   string // of the server that was called: the API's, or the issuer's
	Method    string // such as /holdfast.iam.v2beta1.GroupsService/GetGroup
	RequestID string // under which the server has logged the call; "" if it did not answer

	status *status.Status
}

// Error is the sentence the server gave.
func (e *Error) Error() string { return e.status.Message() }

// GRPCStatus is the answer with its details, for package status.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Is takes a call that was given up for the context that ended it.
func (e *Error) Is(target error) bool {
	return (target == context.Canceled && e.status.Code() == codes.Canceled) ||
		(target == context.DeadlineExceeded && e.status.Code() == codes.DeadlineExceeded)
}

// Reason is the machine's word for what is wrong, such as INVALID_ARGUMENT; "" if
// no server said.
func (e *Error) Reason() string {
	info, _ := Detail[*errdetails.ErrorInfo](e)
	return info.GetReason()
}

// Fields are the fields of the request to change, all of them.
func (e *Error) Fields() []*errdetails.BadRequest_FieldViolation {
	bad, _ := Detail[*errdetails.BadRequest](e)
	return bad.GetFieldViolations()
}

// Detail finds a typed detail of an error, such as *errdetails.ErrorInfo or
// *errdetails.PreconditionFailure. false stands for none.
func Detail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok := d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}

// failure makes an error of a call an Error; nil stays nil.
func (l *line) failure(method string, header metadata.MD, err error) error {
	if err == nil {
		return nil
	}
	if _, already := errors.AsType[*Error](err); already {
		return err
	}
	e := &Error{Address: l.address, Method: method, status: status.Convert(err)}
	if ids := header.Get("x-request-id"); len(ids) > 0 {
		e.RequestID = ids[0]
	}
	return e
}

// givenUp is the Error of a step that did not end before its context did.
func givenUp(ctx context.Context, address string) error {
	return &Error{Address: address, status: status.FromContextError(ctx.Err())}
}
