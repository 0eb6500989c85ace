package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/api/wire"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

// GroupOf returns the message of a group. It has no limits, and is always ready,
// because organizations here have no stages of set-up.
func GroupOf(g resource.Group) *iampb.Group {
	return &iampb.Group{
		Uid: string(g.UID), Name: g.Name, Description: g.Description, Verified: g.Verified, Kind: iampb.OrgKind(g.Kind),
		Status: iampb.OrgStatus_ORG_STATUS_READY, CreateTime: wire.Time(g.CreateTime), UpdateTime: wire.Time(g.UpdateTime),
	}
}

// readGroup copies what clients may set from p to g.
func readGroup(p *iampb.Group, g *resource.Group) error {
	g.Name, g.Description, g.Verified, g.Kind = p.GetName(), p.GetDescription(), p.GetVerified(), resource.OrgKind(p.GetKind())
	return nil
}

func (s *server) CreateGroup(ctx context.Context, r *iampb.CreateGroupRequest) (*iampb.Group, error) {
	var g resource.Group
	if err := readGroup(r.GetGroup(), &g); err != nil {
		return nil, err
	}
	g, err := s.IAM.CreateGroup(ctx, r.GetParent(), g)
	return GroupOf(g), err
}

func (s *server) GetGroup(ctx context.Context, r *iampb.GetGroupRequest) (*iampb.Group, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetGroup, GroupOf)
}

func (s *server) UpdateGroup(ctx context.Context, r *iampb.UpdateGroupRequest) (*iampb.Group, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "group", r.GetGroup(), readGroup, s.IAM.UpdateGroup, GroupOf)
}

func (s *server) DeleteGroup(ctx context.Context, r *iampb.DeleteGroupRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteGroup)
}

func (s *server) ListGroups(ctx context.Context, r *iampb.ListGroupsRequest) (*iampb.ListGroupsResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.IAM.ListGroups, GroupOf)
	return &iampb.ListGroupsResponse{Groups: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) LookupGroup(ctx context.Context, _ *iampb.LookupGroupRequest) (*iampb.LookupGroupResponse, error) {
	g, err := s.IAM.LookupGroup(ctx)
	return &iampb.LookupGroupResponse{Group: GroupOf(g)}, err
}

func (s *server) RequestGroupAccess(ctx context.Context, r *iampb.RequestGroupAccessRequest) (*iampb.RequestGroupAccessResponse, error) {
	return &iampb.RequestGroupAccessResponse{}, wire.Do(ctx, "group_uid", r.GetGroupUid(), s.IAM.RequestGroupAccess)
}

func (s *server) CheckEligibility(ctx context.Context, _ *iampb.CheckEligibilityRequest) (*iampb.CheckEligibilityResponse, error) {
	eligible, err := s.IAM.CheckEligibility(ctx)
	return &iampb.CheckEligibilityResponse{Eligible: eligible}, err
}
