package accessapi

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// grantOf converts a binding that grants access to a message.
func grantOf(b resource.BoundRole) *accesspb.Grant {
	p := boundRoleOf(b)
	g := &accesspb.Grant{BindingUid: p.Uid, Identity: p.Identity, Group: p.Group, Role: p.Role, CreateTime: p.CreateTime,
		ExpireTime: p.ExpireTime, Deactivated: b.Deactivated}
	if t := b.Team; t != nil {
		g.BindingUid = ""
		g.Team = &accesspb.TeamRole{
			TeamUid: string(t.Team), TeamName: t.TeamName, IdentityProviderUid: string(t.Provider),
			IdentityProviderName: t.ProviderName, MappingUid: string(t.Mapping),
		}
	}
	return g
}

// readCapability returns the capability with a dotted name, or with its name in
// roles.
func readCapability(name string, bad *wire.Problems) resource.Capability {
	c, ok := resource.ParseCapability(name)
	if !ok {
		c, ok = resource.CapabilityNumbered(capabilitiespb.Capability_value[name])
	}
	switch {
	case name == "":
		bad.Add(fault.Field("capability", "is required"))
	case !ok:
		bad.Add(fault.Field("capability", "there is no such capability"))
	}
	return c
}

// readAsOf returns the time in the field as_of, truncated to milliseconds, because the
// times of changes are recorded in milliseconds. It is zero if the field is not set.
func readAsOf(t *timestamppb.Timestamp, bad *wire.Problems) time.Time {
	return readMoment("as_of", t, bad)
}

func readMoment(field string, t *timestamppb.Timestamp, bad *wire.Problems) time.Time {
	moment, err := wire.ReadTime(field, t)
	bad.Add(err)
	return moment
}

// readOptionalUID returns the UID in a field that may be empty.
func readOptionalUID(field, text string, bad *wire.Problems) resource.UID {
	if text == "" {
		return ""
	}
	return bad.UID(field, text)
}

func (s *server) CheckAccess(
	ctx context.Context, r *accesspb.CheckAccessRequest,
) (*accesspb.CheckAccessResponse, error) {
	var bad wire.Problems
	identity := bad.UID("identity_uid", r.GetIdentityUid())
	want, place := readCapability(r.GetCapability(), &bad), bad.UID("place_uid", r.GetPlaceUid())
	asOf := readAsOf(r.GetAsOf(), &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	check := s.IAM.CheckAccessAt
	if r.GetVerdictOnly() {
		check = s.IAM.Verdict
	}
	a, err := check(ctx, identity, want, place, asOf)
	out := &accesspb.CheckAccessResponse{
		Allowed: a.Allowed, Grants: wire.Convert(a.Items, grantOf), Incomplete: a.Incomplete,
	}
	if err == nil && r.GetExplain() && !a.Allowed && asOf.IsZero() {
		var missing iam.MissingCapability
		missing, err = s.IAM.ExplainMissing(ctx, identity, want, place)
		out.Lack = lackOf(missing)
	}
	return out, err
}

func lackOf(l iam.MissingCapability) *accesspb.Lack {
	p := &accesspb.Lack{Kind: accesspb.LackKind(l.Reason), Givers: wire.Convert(l.Givers, grantOf)}
	if l.Nearest != nil {
		p.Nearest = grantOf(*l.Nearest)
	}
	if l.Role.UID != "" {
		p.Role = &iampb.RoleBindingRole{Uid: string(l.Role.UID), Name: l.Role.Name, Description: l.Role.Description}
	}
	return p
}

func (s *server) ListAccess(ctx context.Context, r *accesspb.ListAccessRequest) (*accesspb.ListAccessResponse, error) {
	var bad wire.Problems
	var want resource.Capability
	var place resource.UID
	continued := r.GetPageToken() != "" // a page token already contains the fields that the request omits
	if r.GetCapability() != "" || !continued {
		want = readCapability(r.GetCapability(), &bad)
	}
	if r.GetPlaceUid() != "" || !continued {
		place = bad.UID("place_uid", r.GetPlaceUid())
	}
	asOf := readAsOf(r.GetAsOf(), &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	a, err := s.IAM.ListAccessAt(ctx, want, place, asOf, wire.Params(r))
	p := wire.PageOf(ctx, a.Page, grantOf)
	return &accesspb.ListAccessResponse{
		Grants: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Incomplete: a.Incomplete,
	}, err
}

func (s *server) ListEndingGrants(
	ctx context.Context, r *accesspb.ListEndingGrantsRequest,
) (*accesspb.ListEndingGrantsResponse, error) {
	var group resource.UID
	if r.GetGroupUid() != "" {
		var bad wire.Problems
		if group = bad.UID("group_uid", r.GetGroupUid()); bad.Err() != nil {
			return nil, bad.Err()
		}
	}
	ending, truncated, err := s.IAM.ListEnding(ctx, r.GetWithin().AsDuration(), group, r.GetPageSize())
	return &accesspb.ListEndingGrantsResponse{Grants: wire.Convert(ending, grantOf), More: truncated}, err
}

func (s *server) ResolvePath(
	ctx context.Context, r *accesspb.ResolvePathRequest,
) (*accesspb.ResolvePathResponse, error) {
	found, err := s.IAM.ResolvePath(ctx, r.GetKind(), r.GetPath())
	path := "/" + strings.TrimPrefix(r.GetPath(), "/")
	return &accesspb.ResolvePathResponse{
		Resources: wire.Convert(found, func(uid resource.UID) *accesspb.ResolvedResource {
			return &accesspb.ResolvedResource{Uid: string(uid), Path: path}
		}),
	}, err
}

func (s *server) LookupNames(
	ctx context.Context, r *accesspb.LookupNamesRequest,
) (*accesspb.LookupNamesResponse, error) {
	var bad wire.Problems
	uids := make([]resource.UID, len(r.GetUids()))
	for i, text := range r.GetUids() {
		uids[i] = bad.UID(fmt.Sprintf("uids[%d]", i), text)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	found, err := s.IAM.LookupNames(ctx, uids)
	return &accesspb.LookupNamesResponse{
		Names: wire.Convert(found, func(n iam.Name) *accesspb.ResourceName {
			return &accesspb.ResourceName{
				Uid: string(n.UID), Kind: n.Kind, Name: n.Name, DisplayName: n.DisplayName, Path: n.Path,
			}
		}),
	}, err
}

func (*server) ListCapabilities(
	context.Context, *accesspb.ListCapabilitiesRequest,
) (*accesspb.ListCapabilitiesResponse, error) {
	values := capabilitiespb.Capability(0).Descriptor().Values()
	list := &accesspb.ListCapabilitiesResponse{}
	for i := range values.Len() {
		n := values.Get(i).Number()
		if c, ok := resource.CapabilityNumbered(int32(n)); ok {
			list.Capabilities = append(list.Capabilities, &accesspb.NamedCapability{
				Name: c.String(), Capability: capabilitiespb.Capability(n), Family: family(c.String()),
			})
		}
	}
	return list, nil
}

// family returns the name of a capability without its last part.
func family(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	return name
}

func (s *server) GetVersion(context.Context, *accesspb.GetVersionRequest) (*accesspb.Version, error) {
	return &accesspb.Version{Version: s.cfg.Version, GoVersion: runtime.Version(), ApiVersions: wire.Versions()}, nil
}
