package api

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

type rolesV1 struct {
	iamv1pb.UnsafeRolesServer
	iam *iam.Service
}

func roleV1(r resource.Role) *iamv1pb.Role {
	return &iamv1pb.Role{
		Id: string(r.UID), Name: r.Name, Description: r.Description,
		Capabilities: convert(r.Capabilities.All(), resource.Capability.String),
	}
}

func readRoleV1(p *iamv1pb.Role, r *resource.Role) error {
	r.Name, r.Description = p.GetName(), p.GetDescription()
	var set resource.Capabilities
	for _, name := range p.GetCapabilities() {
		c, ok := resource.ParseCapability(name)
		if !ok {
			return fault.Field("capabilities", "%q is not a capability", name)
		}
		set.Add(c)
	}
	r.Capabilities = set
	return nil
}

// Create is of iamv1pb.RolesServer.
func (s rolesV1) Create(ctx context.Context, r *iamv1pb.CreateRoleRequest) (*iamv1pb.Role, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var role resource.Role
	if err := readRoleV1(r.GetRole(), &role); err != nil {
		return nil, err
	}
	if role, err = s.iam.CreateRole(ctx, parent, role); err != nil {
		return nil, err
	}
	return roleV1(role), nil
}

// Update is of iamv1pb.RolesServer.
func (s rolesV1) Update(ctx context.Context, r *iamv1pb.Role) (*iamv1pb.Role, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	role, err := s.iam.UpdateRole(ctx, uid, func(role *resource.Role) error { return readRoleV1(r, role) })
	if err != nil {
		return nil, err
	}
	return roleV1(role), nil
}

// List is of iamv1pb.RolesServer.
func (s rolesV1) List(ctx context.Context, r *iamv1pb.RoleFilter) (*iamv1pb.RoleList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId()), Name: r.GetName()}
	if r.GetParent() != "" {
		f.Place.ChildrenOf = resource.UID(r.GetParent())
	}
	all, err := everything(func(p page.Params) (page.Page[resource.Role], error) { return s.iam.ListRoles(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &iamv1pb.RoleList{Items: convert(all, roleV1)}, nil
}

// Delete is of iamv1pb.RolesServer.
func (s rolesV1) Delete(ctx context.Context, r *iamv1pb.DeleteRoleRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteRole)
}

type roleBindingsV1 struct {
	iamv1pb.UnsafeRoleBindingsServer
	iam *iam.Service
}

func bindingV1(b resource.BoundRole) *iamv1pb.RoleBinding {
	return &iamv1pb.RoleBinding{Id: string(b.UID), Identity: string(b.Identity), Group: string(b.Group()), Role: string(b.RoleBinding.Role)}
}

// boundV1 is a binding with what it ties together, as lists have it.
func boundV1(b resource.BoundRole) *iamv1pb.RoleBindingList_Binding {
	return &iamv1pb.RoleBindingList_Binding{
		Id: string(b.UID), Identity: string(b.Identity), CreatedAt: timeOf(b.CreateTime),
		Group: &iamv1pb.Group{Id: string(b.GroupInfo.UID), Name: b.GroupInfo.Name, Description: b.GroupInfo.Description},
		Role:  &iamv1pb.Role{Id: string(b.RoleInfo.UID), Name: b.RoleInfo.Name, Description: b.RoleInfo.Description},
		Email: b.IdentityInfo.Email, ClaimMatchIssuer: b.IdentityInfo.Issuer, ClaimMatchSubject: b.IdentityInfo.Subject,
	}
}

// readBindingV1 reads what a binding ties together. Its group follows from where
// it is; what the message says of it does not count.
func readBindingV1(prefix string, p *iamv1pb.RoleBinding, b *resource.RoleBinding) error {
	var bad []fault.Violation
	uid := func(field, s string) resource.UID {
		u, err := resource.ParseUID(prefix+field, s)
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
		return u
	}
	b.Identity, b.Role = uid("identity", p.GetIdentity()), uid("role", p.GetRole())
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// Create is of iamv1pb.RoleBindingsServer.
func (s roleBindingsV1) Create(ctx context.Context, r *iamv1pb.CreateRoleBindingRequest) (*iamv1pb.RoleBinding, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var b resource.RoleBinding
	if err := readBindingV1("", r.GetRoleBinding(), &b); err != nil {
		return nil, err
	}
	bound, err := s.iam.CreateBinding(ctx, parent, b)
	if err != nil {
		return nil, err
	}
	return bindingV1(bound), nil
}

// CreateBatch is of iamv1pb.RoleBindingsServer.
func (s roleBindingsV1) CreateBatch(ctx context.Context, r *iamv1pb.CreateRoleBindingBatchRequest) (*iamv1pb.RoleBindingBatch, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetRoleBindings()); n == 0 || n > resource.MaxBatch {
		return nil, fault.Field("role_bindings", "must have 1 to %d bindings", resource.MaxBatch)
	}
	batch := make([]resource.RoleBinding, len(r.GetRoleBindings()))
	var bad []fault.Violation
	for i, p := range r.GetRoleBindings() {
		if err := readBindingV1(fmt.Sprintf("role_bindings[%d].", i), p, &batch[i]); err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	if len(bad) > 0 {
		return nil, fault.Fields(bad)
	}
	bound, err := s.iam.CreateBindings(ctx, parent, batch)
	if err != nil {
		return nil, err
	}
	return &iamv1pb.RoleBindingBatch{RoleBindings: convert(bound, bindingV1)}, nil
}

// Update is of iamv1pb.RoleBindingsServer.
func (s roleBindingsV1) Update(ctx context.Context, r *iamv1pb.RoleBinding) (*iamv1pb.RoleBinding, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	b, err := s.iam.UpdateBinding(ctx, uid, func(b *resource.RoleBinding) error { return readBindingV1("", r, b) })
	if err != nil {
		return nil, err
	}
	return bindingV1(b), nil
}

// List is of iamv1pb.RoleBindingsServer.
func (s roleBindingsV1) List(ctx context.Context, r *iamv1pb.RoleBindingFilter) (*iamv1pb.RoleBindingList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId())}
	all, err := everything(func(p page.Params) (page.Page[resource.BoundRole], error) { return s.iam.ListBindings(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &iamv1pb.RoleBindingList{Items: convert(all, boundV1)}, nil
}

// Delete is of iamv1pb.RoleBindingsServer.
func (s roleBindingsV1) Delete(ctx context.Context, r *iamv1pb.DeleteRoleBindingRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteBinding)
}
