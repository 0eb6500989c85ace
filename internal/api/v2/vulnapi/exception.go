package vulnapi

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
)

// exceptionRecordOf converts an exception to the message in an event. The message has no
// state, because the state depends on the time at which the event is read.
func exceptionRecordOf(e vuln.Exception) *pb.Exception {
	return &pb.Exception{
		Uid: string(e.UID), TargetUid: string(e.Target), TagPattern: e.TagPattern, Digest: e.Digest,
		AdvisoryId: e.Advisory, Purl: e.PURL, Reason: e.Reason,
		Justification: pb.Justification(max(0, slices.Index(vuln.Justifications, e.Justification))),
		ExpireTime:    wire.Time(e.ExpireTime), AuthorUid: string(e.Author), CreateTime: wire.Time(e.CreateTime),
		ApproverUid: string(e.Approver), ApproveTime: wire.Time(e.ApproveTime),
		DeleterUid: string(e.Deleter), DeleteTime: wire.Time(e.DeleteTime),
	}
}

func exceptionOf(c policy.CountedException) *pb.Exception {
	p := exceptionRecordOf(c.Exception)
	switch {
	case !c.DeleteTime.IsZero():
		p.State = pb.ExceptionState_EXCEPTION_STATE_DELETED
	case !c.ExpireTime.IsZero() && !c.Now.Before(c.ExpireTime):
		p.State = pb.ExceptionState_EXCEPTION_STATE_EXPIRED
	case c.ApproveTime.IsZero():
		p.State = pb.ExceptionState_EXCEPTION_STATE_PROPOSED
	default:
		p.State = pb.ExceptionState_EXCEPTION_STATE_ACTIVE
	}
	if m := c.Matching; m != nil {
		p.Matching = &pb.ExceptionMatching{Findings: m.Findings, Images: m.Images}
	}
	return p
}

// readException copies the fields that clients may set from p to e.
func readException(p *pb.Exception, e *vuln.Exception) (err error) {
	if e.Target, err = wire.OptionalUID("target_uid", p.GetTargetUid()); err != nil {
		return err
	}
	if _, ok := pb.Justification_name[int32(p.GetJustification())]; !ok {
		return fault.Field("justification", "%d is not a justification", p.GetJustification())
	}
	e.TagPattern, e.Digest, e.Advisory, e.PURL = p.GetTagPattern(), p.GetDigest(), p.GetAdvisoryId(), p.GetPurl()
	e.Reason, e.Justification = p.GetReason(), vuln.Justifications[p.GetJustification()]
	e.ExpireTime, err = wire.ReadTime("expire_time", p.GetExpireTime())
	return err
}

func (s *server) CreateException(ctx context.Context, r *pb.CreateExceptionRequest) (*pb.Exception, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetException(), readException, s.Policy.CreateException,
		exceptionOf)
}

func (s *server) GetException(ctx context.Context, r *pb.GetExceptionRequest) (*pb.Exception, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Policy.GetException, exceptionOf)
}

func (s *server) ApproveException(ctx context.Context, r *pb.ApproveExceptionRequest) (*pb.Exception, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Policy.ApproveException, exceptionOf)
}

func (s *server) DeleteException(ctx context.Context, r *pb.DeleteExceptionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Policy.DeleteException)
}

func (s *server) ListExceptions(ctx context.Context, r *pb.ListExceptionsRequest) (*pb.ListExceptionsResponse, error) {
	f := policy.ExceptionFilter{
		Filter: resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, Count: r.GetCountMatching(),
	}
	p, err := wire.List(ctx, r, f, s.Policy.ListExceptions, exceptionOf)
	if err != nil {
		return nil, err
	}
	out := &pb.ListExceptionsResponse{
		Exceptions: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}
	if !f.Count {
		return out, nil
	}
	var places []resource.UID // an exception applies to images in its group and below
	if group := r.GetUidp().GetDescendantsOf(); group != "" {
		places = []resource.UID{resource.UID(group)}
	}
	c, err := s.Findings.Coverage(ctx, true, places...)
	out.Coverage = answerCoverageOf(c)
	return out, err
}
