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

// An Error is a failed call. Its status comes from the server, or from gRPC if the server
// did not answer. status.Code returns its code, and errors.Is matches context.Canceled
// and context.DeadlineExceeded.
type Error struct {
	Address   string // address of the called server: the API or the issuer
	Method    string // full name, such as /holdfast.iam.v2beta1.GroupsService/GetGroup
	RequestID string // request ID in the server's log; "" if the server did not answer

	status *status.Status
}

// Error returns the message of the server.
func (e *Error) Error() string { return e.status.Message() }

// GRPCStatus returns the status with its details, for package status.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Is reports whether target is the context error that ended the call.
func (e *Error) Is(target error) bool {
	return (target == context.Canceled && e.status.Code() == codes.Canceled) ||
		(target == context.DeadlineExceeded && e.status.Code() == codes.DeadlineExceeded)
}

// Reason returns the reason in a form for programs, such as INVALID_ARGUMENT, or "" if no
// server has answered.
func (e *Error) Reason() string {
	info, _ := Detail[*errdetails.ErrorInfo](e)
	return info.GetReason()
}

// Fields returns the invalid fields of the request.
func (e *Error) Fields() []*errdetails.BadRequest_FieldViolation {
	bad, _ := Detail[*errdetails.BadRequest](e)
	return bad.GetFieldViolations()
}

// Detail returns the first detail of err that has type T, such as *errdetails.ErrorInfo
// or *errdetails.PreconditionFailure.
func Detail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok := d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}

// failure returns err as an *Error. It returns nil if err is nil.
func (e *endpoint) failure(method string, header metadata.MD, err error) error {
	if err == nil {
		return nil
	}
	if _, already := errors.AsType[*Error](err); already {
		return err
	}
	failed := &Error{Address: e.address, Method: method, status: status.Convert(err)}
	if ids := header.Get("x-request-id"); len(ids) > 0 {
		failed.RequestID = ids[0]
	}
	return failed
}

// givenUp returns the *Error of a step whose context has ended.
func givenUp(ctx context.Context, address string) error {
	return &Error{Address: address, status: status.FromContextError(ctx.Err())}
}
