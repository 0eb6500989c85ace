package api

import (
	"context"
	"runtime"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/fault"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type access struct {
	accesspb.UnsafeAccessServiceServer
	iam     *iam.Service
	version string
}

// grantOf writes a binding as the reason for somebody's access.
func grantOf(b resource.BoundRole) *accesspb.Grant {
	p := boundRoleOf(b)
	return &accesspb.Grant{BindingUid: p.Uid, Identity: p.Identity, Group: p.Group, Role: p.Role, CreateTime: p.CreateTime}
}

// A question reads whose access is asked about, to do what, where, and keeps
// what is wrong with it.
type question struct{ bad []fault.Violation }

func (q *question) uid(field, s string) resource.UID {
	uid, err := resource.ParseUID(field, s)
	if err != nil {
		q.bad = append(q.bad, fault.From(err).Fields...)
	}
	return uid
}

// capability reads a capability by its dotted name or by the one that roles
// have it under.
func (q *question) capability(name string) resource.Capability {
	c, ok := resource.ParseCapability(name)
	if !ok {
		c, ok = resource.CapabilityNumbered(capabilitiespb.Capability_value[name])
	}
	switch {
	case name == "":
		q.bad = append(q.bad, fault.Violation{Subject: "capability", Description: "is required"})
	case !ok:
		q.bad = append(q.bad, fault.Violation{Subject: "capability", Description: "there is no such capability"})
	}
	return c
}

// err reports everything that could not be read.
func (q *question) err() error {
	if len(q.bad) == 0 {
		return nil
	}
	return fault.Fields(q.bad)
}

// CheckAccess is of accesspb.AccessServiceServer.
func (s access) CheckAccess(ctx context.Context, r *accesspb.CheckAccessRequest) (*accesspb.CheckAccessResponse, error) {
	var q question
	identity, want, place := q.uid("identity_uid", r.GetIdentityUid()), q.capability(r.GetCapability()), q.uid("place_uid", r.GetPlaceUid())
	if err := q.err(); err != nil {
		return nil, err
	}
	a, err := s.iam.CheckAccess(ctx, identity, want, place)
	if err != nil {
		return nil, err
	}
	return &accesspb.CheckAccessResponse{Allowed: a.Allowed, Grants: convert(a.Items, grantOf), Incomplete: a.Incomplete}, nil
}

// ListAccess is of accesspb.AccessServiceServer.
func (s access) ListAccess(ctx context.Context, r *accesspb.ListAccessRequest) (*accesspb.ListAccessResponse, error) {
	var q question
	want, place := q.capability(r.GetCapability()), q.uid("place_uid", r.GetPlaceUid())
	if err := q.err(); err != nil {
		return nil, err
	}
	a, err := s.iam.ListAccess(ctx, want, place, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, a.Expired)
	return &accesspb.ListAccessResponse{
		Grants: convert(a.Items, grantOf), NextPageToken: a.Next, TotalCount: proto.Int64(a.Total), Skipped: int32(a.Skipped), Incomplete: a.Incomplete,
	}, nil
}

// ListCapabilities is of accesspb.AccessServiceServer.
func (access) ListCapabilities(context.Context, *accesspb.ListCapabilitiesRequest) (*accesspb.ListCapabilitiesResponse, error) {
	values := capabilitiespb.Capability(0).Descriptor().Values()
	all := &accesspb.ListCapabilitiesResponse{}
	for i := range values.Len() {
		n := values.Get(i).Number()
		if c, ok := resource.CapabilityNumbered(int32(n)); ok {
			all.Capabilities = append(all.Capabilities, &accesspb.NamedCapability{
				Name: c.String(), Capability: capabilitiespb.Capability(n), Family: family(c.String()),
			})
		}
	}
	return all, nil
}

// family is what a capability is about: its name without what it allows.
func family(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i]
	}
	return name
}

// GetVersion is of accesspb.AccessServiceServer.
func (s access) GetVersion(context.Context, *accesspb.GetVersionRequest) (*accesspb.Version, error) {
	return &accesspb.Version{Version: s.version, GoVersion: runtime.Version(), ApiVersions: apiVersions()}, nil
}
