package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/api/wire"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type groups struct {
	iampb.UnsafeGroupsServiceServer
	iam *iam.Service
}

// GroupOf returns the message of a group. It has no limits, and is always ready,
// because organizations here have no stages of set-up.
func GroupOf(g resource.Group) *iampb.Group {
	return &iampb.Group{
		Uid: string(g.UID), Name: g.Name, Description: g.Description, Verified: g.Verified,
		Kind: iampb.OrgKind(g.Kind), Status: iampb.OrgStatus_ORG_STATUS_READY,
		CreateTime: wire.Time(g.CreateTime), UpdateTime: wire.Time(g.UpdateTime),
	}
}

// readGroup copies what clients may set from p to g.
func readGroup(p *iampb.Group, g *resource.Group) error {
	g.Name, g.Description, g.Verified, g.Kind = p.GetName(), p.GetDescription(), p.GetVerified(), resource.OrgKind(p.GetKind())
	return nil
}

func (s groups) CreateGroup(ctx context.Context, r *iampb.CreateGroupRequest) (*iampb.Group, error) {
	var g resource.Group
	if err := readGroup(r.GetGroup(), &g); err != nil {
		return nil, err
	}
	g, err := s.iam.CreateGroup(ctx, r.GetParent(), g)
	return GroupOf(g), err
}

func (s groups) GetGroup(ctx context.Context, r *iampb.GetGroupRequest) (*iampb.Group, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.iam.GetGroup, GroupOf)
}

func (s groups) UpdateGroup(ctx context.Context, r *iampb.UpdateGroupRequest) (*iampb.Group, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "group", r.GetGroup(), readGroup, s.iam.UpdateGroup, GroupOf)
}

func (s groups) DeleteGroup(ctx context.Context, r *iampb.DeleteGroupRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.iam.DeleteGroup)
}

func (s groups) ListGroups(ctx context.Context, r *iampb.ListGroupsRequest) (*iampb.ListGroupsResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{Place: wire.Place(r.GetUidp()), Name: r.GetName()}, s.iam.ListGroups,
		GroupOf)
	return &iampb.ListGroupsResponse{Groups: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s groups) LookupGroup(ctx context.Context, _ *iampb.LookupGroupRequest) (*iampb.LookupGroupResponse, error) {
	g, err := s.iam.LookupGroup(ctx)
	return &iampb.LookupGroupResponse{Group: GroupOf(g)}, err
}

func (s groups) RequestGroupAccess(ctx context.Context, r *iampb.RequestGroupAccessRequest) (*iampb.RequestGroupAccessResponse, error) {
	return &iampb.RequestGroupAccessResponse{}, wire.Do(ctx, "group_uid", r.GetGroupUid(), s.iam.RequestGroupAccess)
}

func (s groups) CheckEligibility(ctx context.Context, _ *iampb.CheckEligibilityRequest) (*iampb.CheckEligibilityResponse, error) {
	eligible, err := s.iam.CheckEligibility(ctx)
	return &iampb.CheckEligibilityResponse{Eligible: eligible}, err
}
