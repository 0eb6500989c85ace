package accessapi

import (
	"context"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
)

func (s *server) GetDirectory(ctx context.Context, r *accesspb.GetDirectoryRequest) (*accesspb.Directory, error) {
	return wire.Get(ctx, "uid", r.GetUid(), func(ctx context.Context, uid resource.UID) (*accesspb.Directory, error) {
		return s.directory(ctx, uid)
	}, func(d *accesspb.Directory) *accesspb.Directory { return d })
}

// maxHeldShown is the greatest number of held changes in an answer.
const maxHeldShown = 100

// directory returns a directory with its held changes.
func (s *server) directory(ctx context.Context, uid resource.UID) (*accesspb.Directory, error) {
	d, err := s.Directories.Status(ctx, uid)
	if err != nil {
		return nil, err
	}
	p := s.directoryOf(d)
	if d.Held > 0 {
		held, err := s.Directories.Held(ctx, uid, maxHeldShown)
		if err != nil {
			return nil, err
		}
		p.HeldChanges = wire.Convert(held, heldChangeOf)
	}
	return p, nil
}

func heldChangeOf(c resource.HeldChange) *accesspb.HeldChange {
	return &accesspb.HeldChange{
		IdentityUid: string(c.Identity), IdentityName: c.Name, ExternalId: c.ExternalID,
		Kind: accesspb.HeldChange_Kind(c.Kind), CreateTime: wire.Time(c.Time),
	}
}

func (s *server) directoryOf(d scim.Status) *accesspb.Directory {
	p := &accesspb.Directory{
		Uid: string(d.Provider), Enabled: d.Enabled, EndpointUrl: s.Directories.Endpoint(d.Provider),
		CredentialState: pb.IdentityProvider_SCIM_CredentialState(s.Directories.State(d.Directory)),
		TokenExpireTime: wire.Time(d.ExpireTime), TokenUseTime: wire.Time(d.UsedTime),
		RoleSource: accesspb.RoleSource_ROLE_SOURCE_CLAIMS, UserCount: d.Users, TeamCount: int64(d.Teams), Etag: d.ETag(),
		Required: new(d.Required), HoldPercent: new(int32(d.HoldPercent)), HoldMinimum: new(int32(d.HoldMinimum)),
		HeldCount: d.Held,
	}
	if d.RolesFromTeams {
		p.RoleSource = accesspb.RoleSource_ROLE_SOURCE_TEAMS
	}
	return p
}

func (s *server) UpdateDirectory(
	ctx context.Context, r *accesspb.UpdateDirectoryRequest,
) (*accesspb.UpdateDirectoryResponse, error) {
	uid, err := resource.ParseUID("directory.uid", r.GetDirectory().GetUid())
	if err != nil {
		return nil, err
	}
	source := r.GetDirectory().GetRoleSource()
	if _, known := accesspb.RoleSource_name[int32(source)]; !known {
		return nil, fault.Field("directory.role_source", "there is no such source")
	}
	out, change := &accesspb.UpdateDirectoryResponse{}, scim.Settings{
		Required: r.GetDirectory().Required, HoldPercent: r.GetDirectory().HoldPercent,
		HoldMinimum: r.GetDirectory().HoldMinimum, Held: scim.Decision(r.GetHeldDecision()),
	}
	if source != accesspb.RoleSource_ROLE_SOURCE_UNSPECIFIED {
		teams := source == accesspb.RoleSource_ROLE_SOURCE_TEAMS
		change.RolesFromTeams = &teams
		if resource.IsDryRun(ctx) {
			p, err := s.Directories.PreviewRoleSource(ctx, uid, teams)
			if err != nil {
				return nil, err
			}
			out.GainedRoles, out.GainedCount = wire.Convert(p.Gained, mappedRoleOf), int32(p.GainedCount)
			out.LostRoles, out.LostCount = wire.Convert(p.Lost, mappedRoleOf), int32(p.LostCount)
		}
	}
	if change != (scim.Settings{}) {
		if _, err := s.Directories.Update(ctx, uid, change, r.GetDirectory().GetEtag()); err != nil {
			return nil, err
		}
	}
	out.Directory, err = s.directory(ctx, uid)
	return out, err
}

func mappedRoleOf(m resource.MappedRole) *accesspb.MappedRole {
	return &accesspb.MappedRole{
		IdentityUid: string(m.Identity), IdentityName: m.Name, GroupUid: string(m.Group), GroupName: m.GroupName,
		RoleUid: string(m.Role), RoleName: m.RoleTitle,
	}
}

// teamOf converts the record of a change of a team.
func teamOf(t resource.TeamChange) *accesspb.Team {
	return &accesspb.Team{
		Uid: string(t.UID), Name: t.Name, ExternalId: t.ExternalID, MemberCount: t.Members,
		CreateTime: wire.Time(t.CreateTime), UpdateTime: wire.Time(t.UpdateTime),
		AddedMembers: t.Added, AddedCount: int32(t.AddedCount),
		RemovedMembers: t.Removed, RemovedCount: int32(t.RemovedCount),
	}
}
