package api

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/resource"
)

type oci struct {
	ocipb.UnsafeOCIServiceServer
	registry *registry.Service
}

// settingsOf writes the rules that hold for a group, whosever they are.
func settingsOf(group resource.UID, s resource.RegistrySettings) *ocipb.Settings {
	return &ocipb.Settings{
		Uid: string(group), Public: s.Public, CreateOnPush: !s.NoCreateOnPush, ImmutableTags: s.ImmutableTags,
		ImmutableExcept: s.ImmutableExcept, SourceUid: string(s.UID), UpdateTime: timeOf(s.UpdateTime),
	}
}

// GetSettings is of ocipb.OCIServiceServer.
func (s oci) GetSettings(ctx context.Context, r *ocipb.GetSettingsRequest) (*ocipb.Settings, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	set, err := s.registry.GetSettings(ctx, uid)
	if err != nil {
		return nil, err
	}
	return settingsOf(uid, set), nil
}

// UpdateSettings is of ocipb.OCIServiceServer.
func (s oci) UpdateSettings(ctx context.Context, r *ocipb.UpdateSettingsRequest) (*ocipb.Settings, error) {
	if r.GetSettings() == nil {
		return nil, fault.Field("settings", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetSettings().GetUid())
	if err != nil {
		return nil, err
	}
	set, err := s.registry.UpdateSettings(ctx, uid, func(set *resource.RegistrySettings) error {
		p := settingsOf(uid, *set)
		if err := apply(r.GetUpdateMask(), r.GetSettings(), p); err != nil {
			return err
		}
		set.Public, set.NoCreateOnPush, set.ImmutableTags = p.GetPublic(), !p.GetCreateOnPush(), p.GetImmutableTags()
		set.ImmutableExcept = p.GetImmutableExcept()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return settingsOf(uid, set), nil
}

// DeleteSettings is of ocipb.OCIServiceServer.
func (s oci) DeleteSettings(ctx context.Context, r *ocipb.DeleteSettingsRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.registry.DeleteSettings(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// GetImage is of ocipb.OCIServiceServer.
func (s oci) GetImage(ctx context.Context, r *ocipb.GetImageRequest) (*ocipb.Image, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	d, err := s.registry.Describe(ctx, repo, r.GetReference())
	if err != nil {
		return nil, err
	}
	return &ocipb.Image{
		RepoUid: string(repo), Digest: d.Digest, MediaType: d.MediaType, ArtifactType: d.ArtifactType, Subject: d.Subject,
		Annotations: d.Annotations, Variants: convert(d.Variants, variantOf), PushTime: timeOf(d.PushTime),
	}, nil
}

func variantOf(v registry.DescribedVariant) *ocipb.Variant {
	c := v.Config
	return &ocipb.Variant{
		Digest: v.Digest, Os: v.OS, Architecture: v.Architecture, Variant: v.Variant.Variant, Size: v.Size, Layers: int32(v.Layers),
		Config: &ocipb.ImageConfig{
			CreateTime: timeOf(c.Created), User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
			WorkingDir: c.WorkingDir, ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Labels: c.Labels,
		},
	}
}

// ListTagHistory is of ocipb.OCIServiceServer.
func (s oci) ListTagHistory(ctx context.Context, r *ocipb.ListTagHistoryRequest) (*ocipb.ListTagHistoryResponse, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	p, err := s.registry.TagHistory(ctx, repo, r.GetTag(), pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	changes := convert(p.Items, func(m resource.TagMove) *ocipb.TagChange {
		return &ocipb.TagChange{Tag: m.Name, Digest: m.Digest, Time: timeOf(m.Time), ActorUid: string(m.Actor.Subject)}
	})
	return &ocipb.ListTagHistoryResponse{
		Changes: changes, NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// pullOf writes who pulled or pushed something.
func pullOf(p registry.NamedPull) *ocipb.Pull {
	direction := ocipb.Direction_DIRECTION_PULL
	if p.Push {
		direction = ocipb.Direction_DIRECTION_PUSH
	}
	return &ocipb.Pull{
		Uid: string(p.UID), RepoUid: string(p.Repo()), Digest: p.Digest, Tag: p.Tag, Direction: direction,
		IdentityUid: string(p.Identity), RemoteAddress: p.Remote, UserAgent: p.Agent, CreateTime: timeOf(p.Time),
		Repo: p.Path, Identity: p.By, Count: 1 + p.More,
	}
}

// ListPulls is of ocipb.OCIServiceServer.
func (s oci) ListPulls(ctx context.Context, r *ocipb.ListPullsRequest) (*ocipb.ListPullsResponse, error) {
	f := resource.Filter{Place: placeOf(r), Digest: r.GetDigest(), Direction: resource.Direction(r.GetDirection())}
	if r.GetIdentityUid() != "" {
		var err error
		if f.Identity, err = resource.ParseUID("identity_uid", r.GetIdentityUid()); err != nil {
			return nil, err
		}
	}
	p, err := s.registry.ListPulls(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &ocipb.ListPullsResponse{
		Pulls: convert(p.Items, pullOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// GetRegistry is of ocipb.OCIServiceServer.
func (s oci) GetRegistry(context.Context, *ocipb.GetRegistryRequest) (*ocipb.Registry, error) {
	return &ocipb.Registry{Host: s.registry.Host()}, nil
}
