package api

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type roleBindings struct {
	iampb.UnsafeRoleBindingsServiceServer
	iam *iam.Service
}

// boundRoleOf writes a binding with what it ties together. The two uids that
// clients send are not in answers.
func boundRoleOf(b resource.BoundRole) *iampb.RoleBinding {
	i := b.IdentityInfo
	return &iampb.RoleBinding{
		Uid: string(b.UID),
		Identity: &iampb.RoleBindingIdentity{
			Uid: string(i.UID), Name: i.Name, Description: i.Description, Subject: i.Subject, Issuer: i.Issuer, Email: i.Email,
		},
		Group:      &iampb.RoleBindingGroup{Uid: string(b.GroupInfo.UID), Name: b.GroupInfo.Name, Description: b.GroupInfo.Description},
		Role:       &iampb.RoleBindingRole{Uid: string(b.RoleInfo.UID), Name: b.RoleInfo.Name, Description: b.RoleInfo.Description},
		CreateTime: timeOf(b.CreateTime),
	}
}

// readBinding reads into b what clients may set. prefix leads to p in the
// request. It reports both uids if both are wrong.
func readBinding(prefix string, p *iampb.RoleBinding, b *resource.RoleBinding) error {
	var bad []fault.Violation
	uid := func(field, s string) resource.UID {
		u, err := resource.ParseUID(prefix+field, s)
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
		return u
	}
	b.Identity, b.Role = uid("identity_uid", p.GetIdentityUid()), uid("role_uid", p.GetRoleUid())
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// CreateRoleBinding is of iampb.RoleBindingsServiceServer.
func (s roleBindings) CreateRoleBinding(ctx context.Context, r *iampb.CreateRoleBindingRequest) (*iampb.RoleBinding, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var b resource.RoleBinding
	if err := readBinding("", r.GetRoleBinding(), &b); err != nil {
		return nil, err
	}
	bound, err := s.iam.CreateBinding(ctx, parent, b)
	if err != nil {
		return nil, err
	}
	return boundRoleOf(bound), nil
}

// GetRoleBinding is of iampb.RoleBindingsServiceServer.
func (s roleBindings) GetRoleBinding(ctx context.Context, r *iampb.GetRoleBindingRequest) (*iampb.RoleBinding, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	b, err := s.iam.GetBinding(ctx, uid)
	if err != nil {
		return nil, err
	}
	return boundRoleOf(b), nil
}

// UpdateRoleBinding is of iampb.RoleBindingsServiceServer.
func (s roleBindings) UpdateRoleBinding(ctx context.Context, r *iampb.UpdateRoleBindingRequest) (*iampb.RoleBinding, error) {
	if r.GetRoleBinding() == nil {
		return nil, fault.Field("role_binding", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetRoleBinding().GetUid())
	if err != nil {
		return nil, err
	}
	b, err := s.iam.UpdateBinding(ctx, uid, func(b *resource.RoleBinding) error {
		p := &iampb.RoleBinding{IdentityUid: string(b.Identity), RoleUid: string(b.Role)}
		if err := apply(r.GetUpdateMask(), r.GetRoleBinding(), p); err != nil {
			return err
		}
		return readBinding("", p, b)
	})
	if err != nil {
		return nil, err
	}
	return boundRoleOf(b), nil
}

// DeleteRoleBinding is of iampb.RoleBindingsServiceServer.
func (s roleBindings) DeleteRoleBinding(ctx context.Context, r *iampb.DeleteRoleBindingRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteBinding(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListRoleBindings is of iampb.RoleBindingsServiceServer.
func (s roleBindings) ListRoleBindings(ctx context.Context, r *iampb.ListRoleBindingsRequest) (*iampb.ListRoleBindingsResponse, error) {
	f := resource.Filter{
		Place: placeOf(r), Identity: resource.UID(r.GetIdentity()), Role: resource.UID(r.GetRole()), Group: resource.UID(r.GetGroup()),
	}
	p, err := s.iam.ListBindings(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListRoleBindingsResponse{
		RoleBindings: convert(p.Items, boundRoleOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// BatchCreateRoleBindings is of iampb.RoleBindingsServiceServer.
func (s roleBindings) BatchCreateRoleBindings(ctx context.Context, r *iampb.BatchCreateRoleBindingsRequest) (*iampb.BatchCreateRoleBindingsResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	batch, err := readBatch(r)
	if err != nil {
		return nil, err
	}
	bound, err := s.iam.CreateBindings(ctx, parent, batch)
	if err != nil {
		return nil, err
	}
	return &iampb.BatchCreateRoleBindingsResponse{RoleBindings: convert(bound, boundRoleOf)}, nil
}

// readBatch reads the bindings of a batch. They may repeat what the batch as a
// whole says, its parent and its role, and not contradict it.
func readBatch(r *iampb.BatchCreateRoleBindingsRequest) ([]resource.RoleBinding, error) {
	if n := len(r.GetRequests()); n == 0 || n > resource.MaxBatch {
		return nil, fault.Field("requests", "must have 1 to %d bindings", resource.MaxBatch)
	}
	batch := make([]resource.RoleBinding, len(r.GetRequests()))
	var bad []fault.Violation
	for i, one := range r.GetRequests() {
		at := fmt.Sprintf("requests[%d].", i)
		if p := one.GetParent(); p != "" && p != r.GetParent() {
			bad = append(bad, fault.Violation{Subject: at + "parent", Description: "must be empty or the parent of the batch"})
		}
		if one.GetValidateOnly() && !r.GetValidateOnly() {
			bad = append(bad, fault.Violation{Subject: at + "validate_only", Description: "is for the batch to say: it happens as a whole"})
		}
		b := &iampb.RoleBinding{IdentityUid: one.GetRoleBinding().GetIdentityUid(), RoleUid: one.GetRoleBinding().GetRoleUid()}
		switch {
		case r.GetRoleUid() == "" || b.RoleUid == r.GetRoleUid():
		case b.RoleUid == "":
			b.RoleUid = r.GetRoleUid()
		default:
			bad = append(bad, fault.Violation{Subject: at + "role_binding.role_uid", Description: "must be empty or the role of the batch"})
		}
		if err := readBinding(at+"role_binding.", b, &batch[i]); err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	if len(bad) > 0 {
		return nil, fault.Fields(bad)
	}
	return batch, nil
}
