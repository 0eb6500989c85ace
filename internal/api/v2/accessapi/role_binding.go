package accessapi

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// boundRoleOf converts a binding to a message with its identity, group and role. Answers
// do not have the two UIDs that clients send.
func boundRoleOf(b resource.BoundRole) *pb.RoleBinding {
	return &pb.RoleBinding{
		Uid:      string(b.UID),
		Identity: boundIdentityOf(b.IdentityInfo),
		Group:    boundGroupOf(b.GroupInfo),
		Role: &pb.RoleBindingRole{Uid: string(b.RoleInfo.UID), Name: b.RoleInfo.Name,
			Description: b.RoleInfo.Description},
		CreateTime: wire.Time(b.CreateTime), StartTime: wire.Time(b.StartTime), ExpireTime: wire.Time(b.ExpireTime),
		Reason: wire.Optional(b.Reason), State: bindingStateOf(b),
	}
}

// boundIdentityOf returns the message that describes an identity inside the message of
// another resource.
func boundIdentityOf(i resource.IdentityInfo) *pb.RoleBindingIdentity {
	return &pb.RoleBindingIdentity{
		Uid: string(i.UID), Name: i.Name, Description: i.Description, Subject: i.Subject, Issuer: i.Issuer, Email: i.Email,
		DisplayName: wire.Optional(i.DisplayName),
	}
}

// boundGroupOf returns the message that describes a group inside the message of another
// resource.
func boundGroupOf(g resource.Info) *pb.RoleBindingGroup {
	return &pb.RoleBindingGroup{Uid: string(g.UID), Name: g.Name, Description: g.Description,
		DisplayName: wire.Optional(g.DisplayName)}
}

// bindingStateOf returns the state of a binding, or nil if the binding has neither a start nor an end and its identity
// is active.
func bindingStateOf(b resource.BoundRole) *pb.RoleBindingState {
	over := b.Timed() && !b.Now.IsZero() && b.State(b.Now) != resource.BindingActive
	switch {
	case b.Deactivated && !over:
		return pb.RoleBindingState_ROLE_BINDING_STATE_DEACTIVATED.Enum()
	case !b.Timed() || b.Now.IsZero():
		return nil
	}
	return pb.RoleBindingState(b.State(b.Now)).Enum()
}

// readBinding copies the fields that clients may set from p to b. prefix is the path of
// p in the request. The error lists every violation.
func readBinding(prefix string, p *pb.RoleBinding, b *resource.RoleBinding) error {
	var bad wire.Problems
	b.Identity = bad.UID(prefix+"identity_uid", p.GetIdentityUid())
	b.Role = bad.UID(prefix+"role_uid", p.GetRoleUid())
	b.StartTime = bad.Time(prefix+"start_time", p.GetStartTime())
	b.ExpireTime = bad.Time(prefix+"expire_time", p.GetExpireTime())
	b.Reason = p.GetReason()
	return bad.Err()
}

// readSingle reads a binding that is not part of a batch.
func readSingle(p *pb.RoleBinding, b *resource.RoleBinding) error { return readBinding("", p, b) }

// uidsOf converts a binding to a message that has only the fields that clients may set.
func uidsOf(b resource.RoleBinding) *pb.RoleBinding {
	return &pb.RoleBinding{
		IdentityUid: string(b.Identity), RoleUid: string(b.Role), Reason: wire.Optional(b.Reason),
		StartTime: wire.Time(b.StartTime), ExpireTime: wire.Time(b.ExpireTime),
	}
}

func (s *server) CreateRoleBinding(ctx context.Context, r *pb.CreateRoleBindingRequest) (*pb.RoleBinding, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetRoleBinding(), readSingle, s.IAM.CreateBinding, boundRoleOf)
}

func (s *server) GetRoleBinding(ctx context.Context, r *pb.GetRoleBindingRequest) (*pb.RoleBinding, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetBinding, boundRoleOf)
}

func (s *server) UpdateRoleBinding(ctx context.Context, r *pb.UpdateRoleBindingRequest) (*pb.RoleBinding, error) {
	return wire.UpdateTo(ctx, r.GetUpdateMask(), "role_binding", r.GetRoleBinding(), readSingle, uidsOf,
		s.IAM.UpdateBinding, boundRoleOf)
}

func (s *server) DeleteRoleBinding(ctx context.Context, r *pb.DeleteRoleBindingRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteBinding)
}

func (s *server) ListRoleBindings(
	ctx context.Context, r *pb.ListRoleBindingsRequest,
) (*pb.ListRoleBindingsResponse, error) {
	f := resource.Filter{
		UIDs: wire.UIDFilter(r.GetUidp()), Identity: resource.UID(r.GetIdentity()), Role: resource.UID(r.GetRole()),
		Group: resource.UID(r.GetGroup()),
	}
	p, err := wire.List(ctx, r, f, s.IAM.ListBindings, boundRoleOf)
	return &pb.ListRoleBindingsResponse{
		RoleBindings: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) BatchCreateRoleBindings(
	ctx context.Context, r *pb.BatchCreateRoleBindingsRequest,
) (*pb.BatchCreateRoleBindingsResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	batch, err := readBatch(r)
	if err != nil {
		return nil, err
	}
	bound, err := s.IAM.CreateBindings(ctx, parent, batch)
	return &pb.BatchCreateRoleBindingsResponse{RoleBindings: wire.Convert(bound, boundRoleOf)}, err
}

// readBatch returns the bindings of a batch. A binding may repeat the parent and the role of
// the batch, but must not name others.
func readBatch(r *pb.BatchCreateRoleBindingsRequest) ([]resource.RoleBinding, error) {
	if n := len(r.GetRequests()); n == 0 || n > resource.MaxBatch {
		return nil, fault.Field("requests", "must have 1 to %d bindings", resource.MaxBatch)
	}
	batch := make([]resource.RoleBinding, len(r.GetRequests()))
	var bad wire.Problems
	for i, request := range r.GetRequests() {
		path := fmt.Sprintf("requests[%d].", i)
		if p := request.GetParent(); p != "" && p != r.GetParent() {
			bad.Add(fault.Field(path+"parent", "must be empty or the parent of the batch"))
		}
		if request.GetValidateOnly() && !r.GetValidateOnly() {
			bad.Add(fault.Field(path+"validate_only", "must be set in the batch, which succeeds or fails as a whole"))
		}
		p := request.GetRoleBinding()
		b := &pb.RoleBinding{
			IdentityUid: p.GetIdentityUid(), RoleUid: p.GetRoleUid(), StartTime: p.GetStartTime(),
			ExpireTime: p.GetExpireTime(), Reason: wire.Optional(p.GetReason()),
		}
		switch {
		case r.GetRoleUid() == "" || b.RoleUid == r.GetRoleUid():
		case b.RoleUid == "":
			b.RoleUid = r.GetRoleUid()
		default:
			bad.Add(fault.Field(path+"role_binding.role_uid", "must be empty or the role of the batch"))
		}
		bad.Add(readBinding(path+"role_binding.", b, &batch[i]))
	}
	return batch, bad.Err()
}
