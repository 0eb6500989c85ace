package accessapi

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (s *server) ListUnusedAccess(
	ctx context.Context, r *accesspb.ListUnusedAccessRequest,
) (*accesspb.ListUnusedAccessResponse, error) {
	params := wire.Params(r)
	if r.GetSimulate() {
		if params.Size > simulation.MaxChanges {
			return nil, fault.Field("page_size", "must be at most %d with simulate", simulation.MaxChanges)
		}
		params.Size = cmp.Or(params.Size, simulation.MaxChanges)
	}
	f := iam.UnusedFilter{
		Kind: resource.UnusedKind(r.GetKind()), Since: r.GetSince().AsDuration(), UIDs: wire.UIDFilter(r.GetUidp()),
	}
	got, err := s.IAM.ListUnused(ctx, f, params)
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got.Page, unusedOf)
	if r.GetSimulate() {
		if err := s.simulateEach(ctx, p.Items); err != nil {
			return nil, err
		}
	}
	return &accesspb.ListUnusedAccessResponse{
		Unused: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		RecordedSince: wire.Time(got.RecordedSince),
	}, nil
}

// simulateEach adds to each item the consequences of its removal, unless the caller
// may not remove it.
func (s *server) simulateEach(ctx context.Context, unused []*accesspb.UnusedAccess) error {
	for _, u := range unused {
		if u.GetChange() == nil {
			continue
		}
		got, err := s.Simulate(ctx, &accesspb.SimulateRequest{Changes: []*accesspb.SimulatedChange{u.GetChange()}})
		if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.FailedPrecondition) ||
			errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		u.Consequences = got
	}
	return nil
}

// remedyOf returns the change that removes unused access, or nil if that needs a
// narrower role and there is none.
func remedyOf(u iam.Unused) *accesspb.SimulatedChange {
	uid := string(u.UID)
	switch {
	case u.Identity != nil:
		return &accesspb.SimulatedChange{
			Change: &accesspb.SimulatedChange_DeleteIdentity{DeleteIdentity: &pb.DeleteIdentityRequest{Uid: uid}},
		}
	case u.Invite != nil:
		return &accesspb.SimulatedChange{
			Change: &accesspb.SimulatedChange_DeleteGroupInvite{DeleteGroupInvite: &pb.DeleteGroupInviteRequest{Uid: uid}},
		}
	case u.Account != nil:
		return &accesspb.SimulatedChange{Change: &accesspb.SimulatedChange_DeleteAccountAssociation{
			DeleteAccountAssociation: &pb.DeleteAccountAssociationRequest{Uid: uid}}}
	case u.Used == (resource.Capabilities{}):
		return &accesspb.SimulatedChange{
			Change: &accesspb.SimulatedChange_DeleteRoleBinding{DeleteRoleBinding: &pb.DeleteRoleBindingRequest{Uid: uid}},
		}
	case u.Suggestion.UID != "":
		update := &pb.UpdateRoleBindingRequest{
			RoleBinding: &pb.RoleBinding{Uid: uid, RoleUid: string(u.Suggestion.UID)},
			UpdateMask:  &fieldmaskpb.FieldMask{Paths: []string{"role_uid"}},
		}
		return &accesspb.SimulatedChange{
			Change: &accesspb.SimulatedChange_UpdateRoleBinding{UpdateRoleBinding: update},
		}
	}
	return nil
}

func unusedReportOf(r resource.UnusedReport) *accesspb.UnusedAccessReport {
	return &accesspb.UnusedAccessReport{
		GroupUid: string(r.Group), Since: durationpb.New(r.Since), RecordedSince: wire.Time(r.RecordedSince),
		Totals: wire.Convert(r.Totals, func(t resource.UnusedTotal) *accesspb.UnusedTotal {
			return &accesspb.UnusedTotal{
				Kind: accesspb.UnusedKind(t.Kind), LookedAt: t.Looked, Unused: t.Unused, Incomplete: t.Incomplete,
			}
		}),
		First: wire.Convert(r.First, func(i resource.UnusedItem) *accesspb.UnusedAccess {
			return &accesspb.UnusedAccess{
				Kind: accesspb.UnusedKind(i.Kind), Uid: string(i.UID), CreateTime: wire.Time(i.CreateTime),
				LastUseTime:           wire.Time(i.LastUse),
				UnusedCapabilityCount: int32(i.Capabilities), PullToken: i.PullToken,
			}
		}),
	}
}

func unusedOf(u iam.Unused) *accesspb.UnusedAccess {
	m := &accesspb.UnusedAccess{
		Uid: string(u.UID), CreateTime: wire.Time(u.CreateTime), LastUseTime: wire.Time(u.LastUse), Change: remedyOf(u),
	}
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
