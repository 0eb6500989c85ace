package v1

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

type groups struct {
	iampb.UnsafeGroupsServer
	iam *iam.Service
}

var groupOf = writer[*iampb.Group](accessapi.GroupOf)

// readGroup copies the fields that clients may set from p to g. It keeps the kind and
// the verification of an organization if the message omits them, because only the
// operator may set them. It returns fault.InvalidArgument for limits, because they
// would be lost: this service has budgets instead.
func readGroup(p *iampb.Group, g *resource.Group) error {
	if len(p.GetResourceLimits()) > 0 {
		return fault.Field("resource_limits", "cannot be set; set the budget of the group instead")
	}
	g.Name, g.Description = p.GetName(), p.GetDescription()
	if p.GetVerified() {
		g.Verified = true
	}
	if p.GetKind() != iampb.OrgKind_ORG_KIND_UNSPECIFIED {
		g.Kind = resource.OrgKind(p.GetKind())
	}
	return nil
}

func (s groups) Create(ctx context.Context, r *iampb.CreateGroupRequest) (*iampb.Group, error) {
	var g resource.Group
	if err := readGroup(r.GetGroup(), &g); err != nil {
		return nil, err
	}
	g, err := s.iam.CreateGroup(ctx, r.GetParent(), g)
	return groupOf(g), err
}

func (s groups) Update(ctx context.Context, r *iampb.Group) (*iampb.Group, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readGroup, s.iam.UpdateGroup, groupOf)
}

func (s groups) List(ctx context.Context, r *iampb.GroupFilter) (*iampb.GroupList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId()), Name: r.GetName()}
	items, err := everything(ctx, f, s.iam.ListGroups, groupOf)
	return &iampb.GroupList{Items: items}, err
}

func (s groups) Delete(ctx context.Context, r *iampb.DeleteGroupRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteGroup)
}

func (s groups) LookupGroup(ctx context.Context, _ *iampb.LookupGroupRequest) (*iampb.LookupGroupResponse, error) {
	g, err := s.iam.LookupGroup(ctx)
	return &iampb.LookupGroupResponse{Group: groupOf(g)}, err
}

func (s groups) RequestGroupAccess(
	ctx context.Context, r *iampb.RequestGroupAccessRequest,
) (*iampb.RequestGroupAccessResponse, error) {
	return &iampb.RequestGroupAccessResponse{}, wire.Do(ctx, "group_id", r.GetGroupId(), s.iam.RequestGroupAccess)
}

func (s groups) CheckEligibility(
	ctx context.Context, _ *iampb.CheckEligibilityRequest,
) (*iampb.CheckEligibilityResponse, error) {
	eligible, err := s.iam.CheckEligibility(ctx)
	return &iampb.CheckEligibilityResponse{Eligible: eligible}, err
}

type ping struct {
	pingpb.UnsafePingServiceServer
}

func (ping) Ping(context.Context, *pingpb.PingRequest) (*pingpb.Response, error) {
	return &pingpb.Response{Response: "pong"}, nil
}
