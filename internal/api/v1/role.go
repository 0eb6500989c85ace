package v1

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

type roles struct {
	pb.UnsafeRolesServer
	iam *iam.Service
}

func roleOf(r resource.Role) *pb.Role {
	return &pb.Role{
		Id: string(r.UID), Name: r.Name, Description: r.Description,
		Capabilities: wire.Convert(r.Capabilities.All(), resource.Capability.String),
	}
}

func readRole(p *pb.Role, r *resource.Role) error {
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

func (s roles) Create(ctx context.Context, r *pb.CreateRoleRequest) (*pb.Role, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetRole(), readRole, s.iam.CreateRole, roleOf)
}

func (s roles) Update(ctx context.Context, r *pb.Role) (*pb.Role, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readRole, s.iam.UpdateRole, roleOf)
}

func (s roles) List(ctx context.Context, r *pb.RoleFilter) (*pb.RoleList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId()), Name: r.GetName()}
	if r.GetParent() != "" {
		f.UIDs.ChildrenOf = resource.UID(r.GetParent())
	}
	items, err := everything(ctx, f, s.iam.ListRoles, roleOf)
	return &pb.RoleList{Items: items}, err
}

func (s roles) Delete(ctx context.Context, r *pb.DeleteRoleRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteRole)
}

type roleBindings struct {
	pb.UnsafeRoleBindingsServer
	iam *iam.Service
}

func bindingOf(b resource.BoundRole) *pb.RoleBinding {
	p := &pb.RoleBinding{Id: string(b.UID), Identity: string(b.Identity), Role: string(b.RoleBinding.Role)}
	p.Group = string(b.Group()) //nolint:staticcheck // deprecated, but clients still read it
	return p
}

// boundOf converts a binding to a message with its identity, group and role, for lists.
func boundOf(b resource.BoundRole) *pb.RoleBindingList_Binding {
	return &pb.RoleBindingList_Binding{
		Id: string(b.UID), Identity: string(b.Identity), CreatedAt: wire.Time(b.CreateTime),
		Group: &pb.Group{Id: string(b.GroupInfo.UID), Name: b.GroupInfo.Name, Description: b.GroupInfo.Description},
		Role:  &pb.Role{Id: string(b.RoleInfo.UID), Name: b.RoleInfo.Name, Description: b.RoleInfo.Description},
		Email: b.IdentityInfo.Email, ClaimMatchIssuer: b.IdentityInfo.Issuer, ClaimMatchSubject: b.IdentityInfo.Subject,
	}
}

// readBinding reads the identity and the role of a binding. It ignores the group in
// the message, because the UID determines the group. prefix is the path of p in the
// request.
func readBinding(prefix string, p *pb.RoleBinding, b *resource.RoleBinding) error {
	var bad wire.Problems
	b.Identity, b.Role = bad.UID(prefix+"identity", p.GetIdentity()), bad.UID(prefix+"role", p.GetRole())
	return bad.Err()
}

// readSingle reads a binding that is not part of a batch.
func readSingle(p *pb.RoleBinding, b *resource.RoleBinding) error { return readBinding("", p, b) }

func (s roleBindings) Create(ctx context.Context, r *pb.CreateRoleBindingRequest) (*pb.RoleBinding, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetRoleBinding(), readSingle, s.iam.CreateBinding, bindingOf)
}

func (s roleBindings) CreateBatch(
	ctx context.Context, r *pb.CreateRoleBindingBatchRequest,
) (*pb.RoleBindingBatch, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetRoleBindings()); n == 0 || n > resource.MaxBatch {
		return nil, fault.Field("role_bindings", "must have 1 to %d bindings", resource.MaxBatch)
	}
	batch := make([]resource.RoleBinding, len(r.GetRoleBindings()))
	var bad wire.Problems
	for i, p := range r.GetRoleBindings() {
		bad.Add(readBinding(fmt.Sprintf("role_bindings[%d].", i), p, &batch[i]))
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	bound, err := s.iam.CreateBindings(ctx, parent, batch)
	return &pb.RoleBindingBatch{RoleBindings: wire.Convert(bound, bindingOf)}, err
}

func (s roleBindings) Update(ctx context.Context, r *pb.RoleBinding) (*pb.RoleBinding, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readSingle, s.iam.UpdateBinding, bindingOf)
}

func (s roleBindings) List(ctx context.Context, r *pb.RoleBindingFilter) (*pb.RoleBindingList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId())}
	items, err := everything(ctx, f, s.iam.ListBindings, boundOf)
	return &pb.RoleBindingList{Items: items}, err
}

func (s roleBindings) Delete(ctx context.Context, r *pb.DeleteRoleBindingRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteBinding)
}
