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

type groups struct {
	iampb.UnsafeGroupsServiceServer
	iam *iam.Service
}

// groupOf writes a group. There are no limits and no stages of set-up here: the
// first is empty, and every organization is ready.
func groupOf(g resource.Group) *iampb.Group {
	return &iampb.Group{
		Uid: string(g.UID), Name: g.Name, Description: g.Description, Verified: g.Verified,
		Kind: iampb.OrgKind(g.Kind), Status: iampb.OrgStatus_ORG_STATUS_READY,
		CreateTime: timeOf(g.CreateTime), UpdateTime: timeOf(g.UpdateTime),
	}
}

// readGroup reads into g what clients may set.
func readGroup(p *iampb.Group, g *resource.Group) {
	g.Name, g.Description, g.Verified, g.Kind = p.GetName(), p.GetDescription(), p.GetVerified(), resource.OrgKind(p.GetKind())
}

// CreateGroup is of iampb.GroupsServiceServer.
func (s groups) CreateGroup(ctx context.Context, r *iampb.CreateGroupRequest) (*iampb.Group, error) {
	var g resource.Group
	readGroup(r.GetGroup(), &g)
	g, err := s.iam.CreateGroup(ctx, r.GetParent(), g)
	if err != nil {
		return nil, err
	}
	return groupOf(g), nil
}

// GetGroup is of iampb.GroupsServiceServer.
func (s groups) GetGroup(ctx context.Context, r *iampb.GetGroupRequest) (*iampb.Group, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	g, err := s.iam.GetGroup(ctx, uid)
	if err != nil {
		return nil, err
	}
	return groupOf(g), nil
}

// UpdateGroup is of iampb.GroupsServiceServer.
func (s groups) UpdateGroup(ctx context.Context, r *iampb.UpdateGroupRequest) (*iampb.Group, error) {
	if r.GetGroup() == nil {
		return nil, fault.Field("group", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetGroup().GetUid())
	if err != nil {
		return nil, err
	}
	g, err := s.iam.UpdateGroup(ctx, uid, func(g *resource.Group) error {
		p := groupOf(*g)
		if err := apply(r.GetUpdateMask(), r.GetGroup(), p); err != nil {
			return err
		}
		readGroup(p, g)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return groupOf(g), nil
}

// DeleteGroup is of iampb.GroupsServiceServer.
func (s groups) DeleteGroup(ctx context.Context, r *iampb.DeleteGroupRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteGroup(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListGroups is of iampb.GroupsServiceServer.
func (s groups) ListGroups(ctx context.Context, r *iampb.ListGroupsRequest) (*iampb.ListGroupsResponse, error) {
	p, err := s.iam.ListGroups(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListGroupsResponse{
		Groups: convert(p.Items, groupOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// LookupGroup is of iampb.GroupsServiceServer.
func (s groups) LookupGroup(ctx context.Context, _ *iampb.LookupGroupRequest) (*iampb.LookupGroupResponse, error) {
	g, err := s.iam.LookupGroup(ctx)
	if err != nil {
		return nil, err
	}
	return &iampb.LookupGroupResponse{Group: groupOf(g)}, nil
}

// RequestGroupAccess is of iampb.GroupsServiceServer.
func (s groups) RequestGroupAccess(ctx context.Context, r *iampb.RequestGroupAccessRequest) (*iampb.RequestGroupAccessResponse, error) {
	uid, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.RequestGroupAccess(ctx, uid); err != nil {
		return nil, err
	}
	return &iampb.RequestGroupAccessResponse{}, nil
}

// CheckEligibility is of iampb.GroupsServiceServer.
func (s groups) CheckEligibility(ctx context.Context, _ *iampb.CheckEligibilityRequest) (*iampb.CheckEligibilityResponse, error) {
	eligible, err := s.iam.CheckEligibility(ctx)
	if err != nil {
		return nil, err
	}
	return &iampb.CheckEligibilityResponse{Eligible: eligible}, nil
}
