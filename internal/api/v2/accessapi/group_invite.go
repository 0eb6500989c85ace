package accessapi

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// InviteOf converts an invite to a message. Only a new invite has a code.
func InviteOf(i resource.GroupInvite) *pb.GroupInvite {
	p := &pb.GroupInvite{
		Uid: string(i.UID), RoleUid: string(i.Role), Email: i.Email, SingleUse: i.SingleUse, Code: i.Code, KeyId: i.KeyID,
		ExpirationTime: wire.Time(i.ExpirationTime), CreateTime: wire.Time(i.CreateTime),
		UpdateTime: wire.Time(i.UpdateTime), StartTime: wire.Time(i.StartTime), ExpireTime: wire.Time(i.ExpireTime),
		Reason: wire.Optional(i.Reason),
	}
	if i.UpdateTime.Before(i.CreateTime) {
		p.UpdateTime = p.CreateTime
	}
	if i.RoleInfo.UID != "" {
		r := roleOf(i.RoleInfo)
		p.Role = &pb.GroupInviteRole{Uid: r.Uid, Name: r.Name, Description: r.Description, Capabilities: r.Capabilities}
	}
	return p
}

func (s *server) CreateGroupInvite(ctx context.Context, r *pb.CreateGroupInviteRequest) (*pb.GroupInvite, error) {
	p := r.GetGroupInvite()
	i := resource.GroupInvite{Role: resource.UID(p.GetRoleUid()), Email: p.GetEmail(), SingleUse: p.GetSingleUse()}
	if err := readPromise(p, &i); err != nil {
		return nil, err
	}
	return CreateInvite(ctx, s.IAM, "parent", r.GetParent(), i, p.GetTtl(), InviteOf)
}

// CreateInvite creates an invite to the group in the field of a request.
func CreateInvite[M any](
	ctx context.Context, s *iam.Service, field, group string, i resource.GroupInvite, ttl *durationpb.Duration,
	write func(resource.GroupInvite) M,
) (M, error) {
	return wire.Get(ctx, field, group, func(ctx context.Context, parent resource.UID) (resource.GroupInvite, error) {
		if ttl != nil && ttl.CheckValid() != nil {
			return i, fault.Field("ttl", "is not a duration")
		}
		return s.CreateInvite(ctx, parent, i, ttl.AsDuration())
	}, write)
}

func (s *server) GetGroupInvite(ctx context.Context, r *pb.GetGroupInviteRequest) (*pb.GroupInvite, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetInvite, InviteOf)
}

// readPromise copies the times and the reason of the promised binding from p to i.
func readPromise(p *pb.GroupInvite, i *resource.GroupInvite) error {
	var bad wire.Problems
	i.StartTime, i.ExpireTime = bad.Time("start_time", p.GetStartTime()), bad.Time("expire_time", p.GetExpireTime())
	i.Reason = p.GetReason()
	return bad.Err()
}

// readInvite copies the fields that an update may set from p to i.
func readInvite(p *pb.GroupInvite, i *resource.GroupInvite) (err error) {
	if p.GetSingleUse() != i.SingleUse {
		return fault.Field("single_use", "cannot be changed; create another invite")
	}
	if ttl := p.GetTtl(); ttl != nil {
		if ttl.CheckValid() != nil {
			return fault.Field("ttl", "is not a duration")
		}
		d := ttl.AsDuration()
		i.TTL = &d
	}
	i.Role, i.Email = resource.UID(p.GetRoleUid()), p.GetEmail()
	if err := readPromise(p, i); err != nil {
		return err
	}
	i.ExpirationTime, err = wire.ReadTime("expiration_time", p.GetExpirationTime())
	return err
}

func (s *server) UpdateGroupInvite(ctx context.Context, r *pb.UpdateGroupInviteRequest) (*pb.GroupInvite, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "group_invite", r.GetGroupInvite(), readInvite, s.IAM.UpdateInvite,
		InviteOf)
}

func (s *server) DeleteGroupInvite(ctx context.Context, r *pb.DeleteGroupInviteRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteInvite)
}

func (s *server) ListGroupInvites(
	ctx context.Context, r *pb.ListGroupInvitesRequest,
) (*pb.ListGroupInvitesResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), KeyID: r.GetKeyId()}, s.IAM.ListInvites,
		InviteOf)
	return &pb.ListGroupInvitesResponse{
		GroupInvites: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
