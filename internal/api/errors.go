package api

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// statusOf returns the AIP-193 status of a fault. No other function creates a
// status. id is the request ID, which is the only information that a client gets
// about an internal error.
func statusOf(f *fault.Error, domain, id string) *status.Status {
	message := f.Message
	if f.Code == fault.Internal {
		message = "Internal error: request " + id
	}
	st, err := status.New(codes.Code(f.Code), message).WithDetails(details(f, domain)...)
	if err != nil { // the details contain text that is not UTF-8
		return status.New(codes.Internal, "Internal error: request "+id)
	}
	return st
}

// details returns the details of a fault for programs, ErrorInfo first.
func details(f *fault.Error, domain string) []protoadapt.MessageV1 {
	list := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: f.Code.Reason(), Domain: domain, Metadata: f.Metadata}}
	if len(f.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range f.Fields {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: v.Subject, Description: v.Description})
		}
		list = append(list, bad)
	}
	if len(f.Unmet) > 0 {
		unmet := &errdetails.PreconditionFailure{}
		for _, v := range f.Unmet {
			unmet.Violations = append(unmet.Violations,
				&errdetails.PreconditionFailure_Violation{Type: v.Subject, Description: v.Description})
		}
		list = append(list, unmet)
	}
	if q := f.Quota; q != nil {
		v := &errdetails.QuotaFailure_Violation{Subject: q.Subject, Description: q.Description, QuotaMetric: q.Metric}
		if q.Known {
			v.QuotaValue = q.Limit
		}
		list = append(list, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{v}})
	}
	if f.Resource != nil {
		list = append(list, &errdetails.ResourceInfo{ResourceType: f.Resource.Type, ResourceName: f.Resource.Name})
	}
	if f.RetryIn > 0 {
		list = append(list, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryIn)})
	}
	return list
}
