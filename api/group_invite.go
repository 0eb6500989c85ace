package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type groupInvites struct {
	iampb.UnsafeGroupInvitesServiceServer
	iam *iam.Service
}

// inviteOf writes an invite. Only one that has just been made has a code.
func inviteOf(i resource.GroupInvite) *iampb.GroupInvite {
	p := &iampb.GroupInvite{
		Uid: string(i.UID), RoleUid: string(i.Role), Email: i.Email, SingleUse: i.SingleUse, Code: i.Code, KeyId: i.KeyID,
		ExpirationTime: timeOf(i.ExpirationTime), CreateTime: timeOf(i.CreateTime),
	}
	if i.RoleInfo.UID != "" {
		r := roleOf(i.RoleInfo)
		p.Role = &iampb.GroupInviteRole{Uid: r.Uid, Name: r.Name, Description: r.Description, Capabilities: r.Capabilities}
	}
	return p
}

// CreateGroupInvite is of iampb.GroupInvitesServiceServer.
func (s groupInvites) CreateGroupInvite(ctx context.Context, r *iampb.CreateGroupInviteRequest) (*iampb.GroupInvite, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	p := r.GetGroupInvite()
	if ttl := p.GetTtl(); ttl != nil && ttl.CheckValid() != nil {
		return nil, fault.Field("ttl", "is not a duration")
	}
	i := resource.GroupInvite{Role: resource.UID(p.GetRoleUid()), Email: p.GetEmail(), SingleUse: p.GetSingleUse()}
	i, err = s.iam.CreateInvite(ctx, parent, i, p.GetTtl().AsDuration())
	if err != nil {
		return nil, err
	}
	return inviteOf(i), nil
}

// GetGroupInvite is of iampb.GroupInvitesServiceServer.
func (s groupInvites) GetGroupInvite(ctx context.Context, r *iampb.GetGroupInviteRequest) (*iampb.GroupInvite, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.GetInvite(ctx, uid)
	if err != nil {
		return nil, err
	}
	return inviteOf(i), nil
}

// DeleteGroupInvite is of iampb.GroupInvitesServiceServer.
func (s groupInvites) DeleteGroupInvite(ctx context.Context, r *iampb.DeleteGroupInviteRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteInvite(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListGroupInvites is of iampb.GroupInvitesServiceServer.
func (s groupInvites) ListGroupInvites(ctx context.Context, r *iampb.ListGroupInvitesRequest) (*iampb.ListGroupInvitesResponse, error) {
	p, err := s.iam.ListInvites(ctx, resource.Filter{Place: placeOf(r), KeyID: r.GetKeyId()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListGroupInvitesResponse{
		GroupInvites: convert(p.Items, inviteOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
