package accessapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// GroupOf converts a group to a message. The message has no limits, and its state is
// always ready, because organizations of this service have no stages of set-up.
func GroupOf(g resource.Group) *pb.Group {
	return &pb.Group{
		Uid: string(g.UID), Name: g.Name, Description: g.Description, Verified: g.Verified, Kind: pb.OrgKind(g.Kind),
		DisplayName: wire.Optional(g.DisplayName), Status: pb.OrgStatus_ORG_STATUS_READY,
		CreateTime: wire.Time(g.CreateTime), UpdateTime: wire.Time(g.UpdateTime),
	}
}

// readGroup copies the fields that clients may set from p to g.
func readGroup(p *pb.Group, g *resource.Group) error {
	g.Name, g.Description = p.GetName(), p.GetDescription()
	g.Verified, g.Kind = p.GetVerified(), resource.OrgKind(p.GetKind())
	g.DisplayName = resource.NormalDisplayName(p.GetDisplayName())
	return nil
}

func (s *server) CreateGroup(ctx context.Context, r *pb.CreateGroupRequest) (*pb.Group, error) {
	var g resource.Group
	if err := readGroup(r.GetGroup(), &g); err != nil {
		return nil, err
	}
	g, err := s.IAM.CreateGroup(ctx, r.GetParent(), g)
	return GroupOf(g), err
}

func (s *server) GetGroup(ctx context.Context, r *pb.GetGroupRequest) (*pb.Group, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetGroup, GroupOf)
}

func (s *server) UpdateGroup(ctx context.Context, r *pb.UpdateGroupRequest) (*pb.Group, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "group", r.GetGroup(), readGroup, s.IAM.UpdateGroup, GroupOf)
}

func (s *server) DeleteGroup(ctx context.Context, r *pb.DeleteGroupRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteGroup)
}

func (s *server) ListGroups(ctx context.Context, r *pb.ListGroupsRequest) (*pb.ListGroupsResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.IAM.ListGroups, GroupOf)
	return &pb.ListGroupsResponse{Groups: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) LookupGroup(ctx context.Context, _ *pb.LookupGroupRequest) (*pb.LookupGroupResponse, error) {
	g, err := s.IAM.LookupGroup(ctx)
	return &pb.LookupGroupResponse{Group: GroupOf(g)}, err
}

func (s *server) RequestGroupAccess(
	ctx context.Context, r *pb.RequestGroupAccessRequest,
) (*pb.RequestGroupAccessResponse, error) {
	return &pb.RequestGroupAccessResponse{}, wire.Do(ctx, "group_uid", r.GetGroupUid(), s.IAM.RequestGroupAccess)
}

func (s *server) CheckEligibility(
	ctx context.Context, _ *pb.CheckEligibilityRequest,
) (*pb.CheckEligibilityResponse, error) {
	eligible, err := s.IAM.CheckEligibility(ctx)
	return &pb.CheckEligibilityResponse{Eligible: eligible}, err
}
