package accessapi

import (
	"context"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (s *server) ListPastGrants(
	ctx context.Context, r *accesspb.ListPastGrantsRequest,
) (*accesspb.ListPastGrantsResponse, error) {
	var bad wire.Problems
	f := iam.PastFilter{
		At: readAsOf(r.GetAsOf(), &bad), Place: readOptionalUID("place_uid", r.GetPlaceUid(), &bad),
		Identity: readOptionalUID("identity_uid", r.GetIdentityUid(), &bad),
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	a, err := s.IAM.ListPastBindings(ctx, f, wire.Params(r))
	p := wire.PageOf(ctx, a.Page, grantOf)
	return &accesspb.ListPastGrantsResponse{
		Grants: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Incomplete: a.Incomplete,
	}, err
}

func (s *server) ListPastGroups(
	ctx context.Context, r *accesspb.ListPastGroupsRequest,
) (*accesspb.ListPastGroupsResponse, error) {
	var bad wire.Problems
	var uid resource.UID
	if r.GetUid() != "" || r.GetPageToken() == "" { // without a UID, the page token contains it
		uid = bad.UID("uid", r.GetUid())
	}
	asOf := readAsOf(r.GetAsOf(), &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	got, err := s.IAM.ListPastGroups(ctx, uid, asOf, wire.Params(r))
	p := wire.PageOf(ctx, got, func(g iam.PastGroup) *accesspb.PastGroup {
		return &accesspb.PastGroup{Uid: string(g.UID), Name: g.Name, Deleted: g.Deleted}
	})
	return &accesspb.ListPastGroupsResponse{
		Groups: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) DiffAccess(
	ctx context.Context, r *accesspb.DiffAccessRequest,
) (*accesspb.DiffAccessResponse, error) {
	var bad wire.Problems
	f := iam.DiffFilter{
		From: readMoment("from_time", r.GetFromTime(), &bad), To: readMoment("to_time", r.GetToTime(), &bad),
		Place: readOptionalUID("place_uid", r.GetPlaceUid(), &bad),
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	d, err := s.IAM.DiffAccess(ctx, f, wire.Params(r))
	p := wire.PageOf(ctx, d.Page, grantChangeOf)
	return &accesspb.DiffAccessResponse{
		Changes: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Incomplete: d.Incomplete,
		Roles: wire.Convert(d.Roles, roleChangeOf),
	}, err
}

func grantChangeOf(d iam.GrantDiff) *accesspb.GrantChange {
	return &accesspb.GrantChange{
		Kind: accesspb.GrantChangeKind(d.Change), Time: wire.Time(d.At), ActorUid: string(d.By), Grant: grantOf(d.BoundRole),
	}
}

func roleChangeOf(d iam.RoleDiff) *accesspb.RoleChange {
	capabilities := func(all resource.Capabilities) []capabilitiespb.Capability {
		return wire.Convert(all.All(), func(c resource.Capability) capabilitiespb.Capability {
			return capabilitiespb.Capability(c.Number())
		})
	}
	return &accesspb.RoleChange{
		Role:   &iampb.RoleBindingRole{Uid: string(d.UID), Name: d.Name},
		Gained: capabilities(d.Gained), Lost: capabilities(d.Lost), Time: wire.Time(d.At), ActorUid: string(d.By),
	}
}
