package accessapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func accessRuleOf(r resource.AccessRule) *pb.AccessRule {
	return &pb.AccessRule{
		Uid: string(r.UID), RoleUid: string(r.Role), MaxDuration: durationpb.New(r.MaxDuration),
		Approvers:      int32(r.Approvers),
		ReasonRequired: r.ReasonRequired, BreakGlass: r.BreakGlass, RequesterRoleUid: string(r.Requester),
		CreateTime: wire.Time(r.CreateTime),
	}
}

// readAccessRule copies the fields that clients may set from p to r.
func readAccessRule(p *pb.AccessRule, r *resource.AccessRule) error {
	var bad wire.Problems
	r.Role = bad.UID("role_uid", p.GetRoleUid())
	requester, err := wire.OptionalUID("requester_role_uid", p.GetRequesterRoleUid())
	bad.Add(err)
	r.MaxDuration = readLength(&bad, "max_duration", p.GetMaxDuration())
	r.Requester, r.Approvers = requester, int(p.GetApprovers())
	r.ReasonRequired, r.BreakGlass = p.GetReasonRequired(), p.GetBreakGlass()
	return bad.Err()
}

// readLength returns the duration in a field.
func readLength(bad *wire.Problems, field string, d *durationpb.Duration) time.Duration {
	if d != nil && d.CheckValid() != nil {
		bad.Add(fault.Field(field, "is not a duration"))
		return 0
	}
	return d.AsDuration()
}

// accessRequestRecordOf converts an access request to the message in an event. The
// message has the state that the request had at the time of the event.
func accessRequestRecordOf(r resource.AccessRequest) *pb.AccessRequest {
	return &pb.AccessRequest{
		Uid: string(r.UID), RoleUid: string(r.Role), Duration: durationpb.New(r.Duration), Reason: r.Reason,
		BreakGlass: r.BreakGlass, IdentityUid: string(r.Identity), State: pb.AccessRequestState(r.State),
		Approvers: int32(r.Approvers), CloserUid: string(r.Closer), CloseTime: wire.Time(r.CloseTime),
		Approvals: wire.Convert(r.Approvals, func(a resource.AccessApproval) *pb.AccessApproval {
			return &pb.AccessApproval{IdentityUid: string(a.Identity), Time: wire.Time(a.Time)}
		}),
		BindingUid: string(r.Binding), GrantTime: wire.Time(r.GrantTime), ExpireTime: wire.Time(r.ExpireTime),
		CreateTime: wire.Time(r.CreateTime), UpdateTime: wire.Time(r.UpdateTime),
	}
}

func accessRequestOf(r iam.DatedRequest) *pb.AccessRequest {
	p := accessRequestRecordOf(r.AccessRequest)
	p.State = pb.AccessRequestState(r.StateAt(r.Now))
	return p
}

// readAccessRequest copies the fields that clients may set from p to r.
func readAccessRequest(p *pb.AccessRequest, r *resource.AccessRequest) error {
	var bad wire.Problems
	r.Role = bad.UID("role_uid", p.GetRoleUid())
	r.Duration = readLength(&bad, "duration", p.GetDuration())
	r.Reason, r.BreakGlass = p.GetReason(), p.GetBreakGlass()
	return bad.Err()
}

func (s *server) CreateAccessRule(ctx context.Context, r *pb.CreateAccessRuleRequest) (*pb.AccessRule, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetAccessRule(), readAccessRule, s.IAM.CreateAccessRule,
		accessRuleOf)
}

func (s *server) ListAccessRules(
	ctx context.Context, r *pb.ListAccessRulesRequest,
) (*pb.ListAccessRulesResponse, error) {
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}
	p, err := wire.List(ctx, r, f, s.IAM.ListAccessRules, accessRuleOf)
	return &pb.ListAccessRulesResponse{
		AccessRules: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) DeleteAccessRule(ctx context.Context, r *pb.DeleteAccessRuleRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteAccessRule)
}

func (s *server) CreateAccessRequest(ctx context.Context, r *pb.CreateAccessRequestRequest) (*pb.AccessRequest, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetAccessRequest(), readAccessRequest, s.IAM.RequestAccessTo,
		accessRequestOf)
}

func (s *server) GetAccessRequest(ctx context.Context, r *pb.GetAccessRequestRequest) (*pb.AccessRequest, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetAccessRequest, accessRequestOf)
}

func (s *server) ListAccessRequests(
	ctx context.Context, r *pb.ListAccessRequestsRequest,
) (*pb.ListAccessRequestsResponse, error) {
	f := iam.RequestFilter{Filter: resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, Mine: r.GetMine()}
	p, err := wire.List(ctx, r, f, s.IAM.ListAccessRequests, accessRequestOf)
	return &pb.ListAccessRequestsResponse{
		AccessRequests: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) ApproveAccessRequest(
	ctx context.Context, r *pb.ApproveAccessRequestRequest,
) (*pb.AccessRequest, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.ApproveAccessRequest, accessRequestOf)
}

func (s *server) DenyAccessRequest(ctx context.Context, r *pb.DenyAccessRequestRequest) (*pb.AccessRequest, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.DenyAccessRequest, accessRequestOf)
}

func (s *server) HandBackAccessRequest(
	ctx context.Context, r *pb.HandBackAccessRequestRequest,
) (*pb.AccessRequest, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.HandBackAccessRequest, accessRequestOf)
}
