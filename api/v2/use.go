package v2

import (
	"context"

	"github.com/holdfast-dev/holdfast/api/wire"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

func (s *server) ListUnusedAccess(
	ctx context.Context, r *accesspb.ListUnusedAccessRequest,
) (*accesspb.ListUnusedAccessResponse, error) {
	f := iam.UnusedFilter{
		Kind: iam.UnusedKind(r.GetKind()), Since: r.GetSince().AsDuration(), UIDs: wire.UIDFilter(r.GetUidp()),
	}
	got, err := s.IAM.ListUnused(ctx, f, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got.Page, unusedOf)
	return &accesspb.ListUnusedAccessResponse{
		Unused: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		RecordedSince: wire.Time(got.RecordedSince),
	}, nil
}

func unusedOf(u iam.Unused) *accesspb.UnusedAccess {
	m := &accesspb.UnusedAccess{Uid: string(u.UID), CreateTime: wire.Time(u.CreateTime), LastUseTime: wire.Time(u.LastUse)}
	switch {
	case u.Binding != nil:
		b := boundRoleOf(*u.Binding)
		m.Kind, m.Name = accesspb.UnusedKind_UNUSED_KIND_ROLE_BINDING, b.GetRole().GetName()
		m.Identity, m.Group, m.Role = b.GetIdentity(), b.GetGroup(), b.GetRole()
		m.UnusedCapabilityCount = int32(len(u.Wider.All()))
		for _, c := range u.Used.All() {
			m.UsedCapabilities = append(m.UsedCapabilities, c.String())
		}
		m.SuggestedRole = suggestedOf(u.Suggestion)
	case u.Identity != nil:
		m.Kind, m.Name, m.PullToken = accesspb.UnusedKind_UNUSED_KIND_IDENTITY, u.Identity.Name, u.PullToken
	case u.Invite != nil:
		m.Kind, m.Name = accesspb.UnusedKind_UNUSED_KIND_GROUP_INVITE, u.Invite.Email
	case u.Account != nil:
		m.Kind, m.Name = accesspb.UnusedKind_UNUSED_KIND_ACCOUNT_ASSOCIATION, u.Account.Name
	}
	return m
}

func suggestedOf(r resource.Info) *pb.RoleBindingRole {
	if r.UID == "" {
		return nil
	}
	return &pb.RoleBindingRole{Uid: string(r.UID), Name: r.Name, Description: r.Description}
}
