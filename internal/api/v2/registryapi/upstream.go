package registryapi

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// upstreamOf converts an upstream to a message, without its credentials.
func upstreamOf(u registry.Upstream) *pb.Upstream {
	return &pb.Upstream{
		Uid: string(u.UID), Name: u.Name, Address: u.Address, Realm: u.Realm, FreshFor: durationpb.New(u.FreshFor),
		Names: u.Names, Anyone: u.Anyone, Identity: u.Identity, HasCredentials: !u.Credentials.Empty(),
		CreateTime: wire.Time(u.CreateTime), UpdateTime: wire.Time(u.UpdateTime),
	}
}

// seenUpstreamOf converts an upstream to a message that also has the result of the last
// request to the upstream.
func (s *server) seenUpstreamOf(u registry.Upstream) *pb.Upstream {
	p := upstreamOf(u)
	if f, ok := s.Registry.UpstreamFailure(u); ok {
		p.LastFailure, p.LastFailureTime = f.Reason, wire.Time(f.Time)
	}
	return p
}

// readUpstream copies the fields that clients may set from p to u, with the
// credentials in plain text.
func readUpstream(p *pb.Upstream, u *registry.Upstream) error {
	u.Name, u.Address, u.Realm, u.Names = p.GetName(), p.GetAddress(), p.GetRealm(), p.GetNames()
	u.Anyone, u.Identity, u.FreshFor = p.GetAnyone(), p.GetIdentity(), 0
	u.Credentials = resource.Secret{Plain: p.GetCredentials()}
	if d := p.GetFreshFor(); d != nil {
		if err := d.CheckValid(); err != nil {
			return fault.Field("fresh_for", "is not a duration")
		}
		u.FreshFor = d.AsDuration().Truncate(time.Millisecond)
	}
	return nil
}

func (s *server) CreateUpstream(ctx context.Context, r *pb.CreateUpstreamRequest) (*pb.Upstream, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetUpstream(), readUpstream, s.Registry.CreateUpstream,
		func(u registry.Upstream) *pb.Upstream {
			p := upstreamOf(u)
			if reason, asked := s.Registry.ProbeUpstream(ctx, u); asked {
				p.Probe = &pb.UpstreamProbe{Ok: reason == "", Reason: reason}
			}
			return p
		})
}

func (s *server) GetUpstream(ctx context.Context, r *pb.GetUpstreamRequest) (*pb.Upstream, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetUpstream, s.seenUpstreamOf)
}

func (s *server) ListUpstreams(ctx context.Context, r *pb.ListUpstreamsRequest) (*pb.ListUpstreamsResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.Registry.ListUpstreams, s.seenUpstreamOf)
	return &pb.ListUpstreamsResponse{
		Upstreams: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) UpdateUpstream(ctx context.Context, r *pb.UpdateUpstreamRequest) (*pb.Upstream, error) {
	if err := wire.Require("upstream", r.GetUpstream()); err != nil {
		return nil, err
	}
	return wire.Get(ctx, "uid", r.GetUpstream().GetUid(),
		func(ctx context.Context, uid resource.UID) (registry.Upstream, error) {
			return s.Registry.UpdateUpstream(ctx, uid, func(u *registry.Upstream) error { return changeUpstream(r, u) })
		}, upstreamOf)
}

// changeUpstream applies r to u. While the mask is applied, the message contains a
// random placeholder instead of the stored credentials. If the placeholder is still
// there afterwards, the credentials are kept.
func changeUpstream(r *pb.UpdateUpstreamRequest, u *registry.Upstream) error {
	placeholder, credentials := rand.Text(), u.Credentials
	p := upstreamOf(*u)
	p.Credentials = placeholder
	if err := wire.Apply(r.GetUpdateMask(), r.GetUpstream(), p); err != nil {
		return err
	}
	if err := readUpstream(p, u); err != nil {
		return err
	}
	if u.Credentials.Plain == placeholder {
		u.Credentials = credentials
	}
	return nil
}

func (s *server) DeleteUpstream(ctx context.Context, r *pb.DeleteUpstreamRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteUpstream)
}
