package api

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/fault"
)

// statusOf turns a fault into what the client is told: the AIP-193 status. It is
// the only place in the service that makes one. id names the request, which is
// all there is to say of an error of ours.
func statusOf(f *fault.Error, domain, id string) *status.Status {
	message := f.Message
	if f.Code == fault.Internal {
		message = "Internal error: request " + id
	}
	st, err := status.New(codes.Code(f.Code), message).WithDetails(details(f, domain)...)
	if err != nil { // a text that is not UTF-8 cannot be told
		return status.New(codes.Internal, "Internal error: request "+id)
	}
	return st
}

// details says what a program may want to know, ErrorInfo first.
func details(f *fault.Error, domain string) []protoadapt.MessageV1 {
	all := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: f.Code.Reason(), Domain: domain, Metadata: f.Metadata}}
	if len(f.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range f.Fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Subject, Description: v.Description})
		}
		all = append(all, bad)
	}
	if len(f.Unmet) > 0 {
		unmet := &errdetails.PreconditionFailure{}
		for _, v := range f.Unmet {
			unmet.Violations = append(unmet.Violations, &errdetails.PreconditionFailure_Violation{Type: v.Subject, Description: v.Description})
		}
		all = append(all, unmet)
	}
	if f.Resource != nil {
		all = append(all, &errdetails.ResourceInfo{ResourceType: f.Resource.Type, ResourceName: f.Resource.Name})
	}
	if f.RetryIn > 0 {
		all = append(all, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryIn)})
	}
	return all
}
