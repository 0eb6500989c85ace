package api

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	pingv1pb "github.com/holdfast-dev/holdfast/gen/ping/v1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

type groupsV1 struct {
	iamv1pb.UnsafeGroupsServer
	iam *iam.Service
}

func groupV1(g resource.Group) *iamv1pb.Group {
	return &iamv1pb.Group{
		Id: string(g.UID), Name: g.Name, Description: g.Description, Verified: g.Verified,
		Kind: iamv1pb.OrgKind(g.Kind), Status: iamv1pb.OrgStatus_ORG_STATUS_READY,
	}
}

// readGroupV1 reads into g what clients may set. What an organization is for,
// and that it is verified, are the operator's to say: to leave them out does not
// reset them.
func readGroupV1(p *iamv1pb.Group, g *resource.Group) {
	g.Name, g.Description = p.GetName(), p.GetDescription()
	if p.GetVerified() {
		g.Verified = true
	}
	if p.GetKind() != iamv1pb.OrgKind_ORG_KIND_UNSPECIFIED {
		g.Kind = resource.OrgKind(p.GetKind())
	}
}

// Create is of iamv1pb.GroupsServer.
func (s groupsV1) Create(ctx context.Context, r *iamv1pb.CreateGroupRequest) (*iamv1pb.Group, error) {
	var g resource.Group
	readGroupV1(r.GetGroup(), &g)
	g, err := s.iam.CreateGroup(ctx, r.GetParent(), g)
	if err != nil {
		return nil, err
	}
	return groupV1(g), nil
}

// Update is of iamv1pb.GroupsServer.
func (s groupsV1) Update(ctx context.Context, r *iamv1pb.Group) (*iamv1pb.Group, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	g, err := s.iam.UpdateGroup(ctx, uid, func(g *resource.Group) error {
		readGroupV1(r, g)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return groupV1(g), nil
}

// List is of iamv1pb.GroupsServer.
func (s groupsV1) List(ctx context.Context, r *iamv1pb.GroupFilter) (*iamv1pb.GroupList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId()), Name: r.GetName()}
	all, err := everything(func(p page.Params) (page.Page[resource.Group], error) { return s.iam.ListGroups(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &iamv1pb.GroupList{Items: convert(all, groupV1)}, nil
}

// Delete is of iamv1pb.GroupsServer.
func (s groupsV1) Delete(ctx context.Context, r *iamv1pb.DeleteGroupRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteGroup)
}

// LookupGroup is of iamv1pb.GroupsServer.
func (s groupsV1) LookupGroup(ctx context.Context, _ *iamv1pb.LookupGroupRequest) (*iamv1pb.LookupGroupResponse, error) {
	g, err := s.iam.LookupGroup(ctx)
	if err != nil {
		return nil, err
	}
	return &iamv1pb.LookupGroupResponse{Group: groupV1(g)}, nil
}

// RequestGroupAccess is of iamv1pb.GroupsServer.
func (s groupsV1) RequestGroupAccess(ctx context.Context, r *iamv1pb.RequestGroupAccessRequest) (*iamv1pb.RequestGroupAccessResponse, error) {
	return &iamv1pb.RequestGroupAccessResponse{}, remove(ctx, "group_id", r.GetGroupId(), s.iam.RequestGroupAccess)
}

// CheckEligibility is of iamv1pb.GroupsServer.
func (s groupsV1) CheckEligibility(ctx context.Context, _ *iamv1pb.CheckEligibilityRequest) (*iamv1pb.CheckEligibilityResponse, error) {
	eligible, err := s.iam.CheckEligibility(ctx)
	if err != nil {
		return nil, err
	}
	return &iamv1pb.CheckEligibilityResponse{Eligible: eligible}, nil
}

type pingV1 struct {
	pingv1pb.UnsafePingServiceServer
}

// Ping is of pingv1pb.PingServiceServer.
func (pingV1) Ping(context.Context, *pingv1pb.PingRequest) (*pingv1pb.Response, error) {
	return &pingv1pb.Response{Response: "pong"}, nil
}
