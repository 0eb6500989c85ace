package accessapi

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/emptypb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func roleOf(r resource.Role) *iampb.Role {
	return &iampb.Role{
		Uid: string(r.UID), Name: r.Name, Description: r.Description,
		Capabilities: wire.Convert(r.Capabilities.All(), func(c resource.Capability) capabilitiespb.Capability {
			return capabilitiespb.Capability(c.Number())
		}),
		CreateTime: wire.Time(r.CreateTime), UpdateTime: wire.Time(r.UpdateTime),
	}
}

// readRole copies the fields that clients may set from p to r. If the capabilities
// did not change, r keeps the capabilities that this version does not know, because a
// newer version may have stored them.
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

func (s *server) CreateRole(ctx context.Context, r *iampb.CreateRoleRequest) (*iampb.Role, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetRole(), readRole, s.IAM.CreateRole, roleOf)
}

func (s *server) GetRole(ctx context.Context, r *iampb.GetRoleRequest) (*iampb.Role, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetRole, roleOf)
}

func (s *server) UpdateRole(ctx context.Context, r *iampb.UpdateRoleRequest) (*iampb.Role, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "role", r.GetRole(), readRole, s.IAM.UpdateRole, roleOf)
}

func (s *server) DeleteRole(ctx context.Context, r *iampb.DeleteRoleRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteRole)
}

func (s *server) ListRoles(ctx context.Context, r *iampb.ListRolesRequest) (*iampb.ListRolesResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.IAM.ListRoles, roleOf)
	return &iampb.ListRolesResponse{Roles: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}
