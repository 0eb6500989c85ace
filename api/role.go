package api

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type roles struct {
	iampb.UnsafeRolesServiceServer
	iam *iam.Service
}

func roleOf(r resource.Role) *iampb.Role {
	return &iampb.Role{
		Uid: string(r.UID), Name: r.Name, Description: r.Description,
		Capabilities: convert(r.Capabilities.All(), func(c resource.Capability) capabilitiespb.Capability {
			return capabilitiespb.Capability(c.Number())
		}),
		CreateTime: timeOf(r.CreateTime), UpdateTime: timeOf(r.UpdateTime),
	}
}

// readRole reads into r what clients may set. Capabilities that are as they were
// keep what r has beside them: a newer version may have stored some that this
// one does not know.
func readRole(p *iampb.Role, r *resource.Role) error {
	r.Name, r.Description = p.GetName(), p.GetDescription()
	if slices.Equal(p.GetCapabilities(), roleOf(*r).GetCapabilities()) {
		return nil
	}
	var set resource.Capabilities
	for _, n := range p.GetCapabilities() {
		c, ok := resource.CapabilityNumbered(int32(n))
		if !ok {
			return fault.Field("capabilities", "%s is not a capability", n)
		}
		set.Add(c)
	}
	r.Capabilities = set
	return nil
}

// CreateRole is of iampb.RolesServiceServer.
func (s roles) CreateRole(ctx context.Context, r *iampb.CreateRoleRequest) (*iampb.Role, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var role resource.Role
	if err := readRole(r.GetRole(), &role); err != nil {
		return nil, err
	}
	role, err = s.iam.CreateRole(ctx, parent, role)
	if err != nil {
		return nil, err
	}
	return roleOf(role), nil
}

// GetRole is of iampb.RolesServiceServer.
func (s roles) GetRole(ctx context.Context, r *iampb.GetRoleRequest) (*iampb.Role, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	role, err := s.iam.GetRole(ctx, uid)
	if err != nil {
		return nil, err
	}
	return roleOf(role), nil
}

// UpdateRole is of iampb.RolesServiceServer.
func (s roles) UpdateRole(ctx context.Context, r *iampb.UpdateRoleRequest) (*iampb.Role, error) {
	if r.GetRole() == nil {
		return nil, fault.Field("role", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetRole().GetUid())
	if err != nil {
		return nil, err
	}
	role, err := s.iam.UpdateRole(ctx, uid, func(role *resource.Role) error {
		p := roleOf(*role)
		if err := apply(r.GetUpdateMask(), r.GetRole(), p); err != nil {
			return err
		}
		return readRole(p, role)
	})
	if err != nil {
		return nil, err
	}
	return roleOf(role), nil
}

// DeleteRole is of iampb.RolesServiceServer.
func (s roles) DeleteRole(ctx context.Context, r *iampb.DeleteRoleRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteRole(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListRoles is of iampb.RolesServiceServer.
func (s roles) ListRoles(ctx context.Context, r *iampb.ListRolesRequest) (*iampb.ListRolesResponse, error) {
	p, err := s.iam.ListRoles(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListRolesResponse{
		Roles: convert(p.Items, roleOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
