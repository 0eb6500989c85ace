package registryapi

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
)

// settingsOf returns a function that converts the settings that apply to a group to a
// message. The settings may belong to a parent group.
func settingsOf(group resource.UID) func(registry.Settings) *pb.Settings {
	return func(s registry.Settings) *pb.Settings {
		return &pb.Settings{
			Uid: string(group), Public: s.Public, CreateOnPush: !s.NoCreateOnPush, ImmutableTags: s.ImmutableTags,
			ImmutableExcept: s.ImmutableExcept, TrashDays: s.TrashDays, CreateGroupsOnPush: s.CreateGroups,
			SourceUid: string(s.UID), UpdateTime: wire.Time(s.UpdateTime),
		}
	}
}

func readSettings(p *pb.Settings, s *registry.Settings) error {
	s.Public, s.NoCreateOnPush = p.GetPublic(), !p.GetCreateOnPush()
	s.ImmutableTags, s.ImmutableExcept, s.TrashDays = p.GetImmutableTags(), p.GetImmutableExcept(), p.TrashDays
	s.CreateGroups = p.GetCreateGroupsOnPush()
	return nil
}

func (s *server) GetSettings(ctx context.Context, r *pb.GetSettingsRequest) (*pb.Settings, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetSettings, settingsOf(resource.UID(r.GetUid())))
}

func (s *server) UpdateSettings(ctx context.Context, r *pb.UpdateSettingsRequest) (*pb.Settings, error) {
	convert := settingsOf(resource.UID(r.GetSettings().GetUid()))
	return wire.Update(ctx, r.GetUpdateMask(), "settings", r.GetSettings(), readSettings, s.Registry.UpdateSettings,
		convert)
}

func (s *server) DeleteSettings(ctx context.Context, r *pb.DeleteSettingsRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteSettings)
}

func (s *server) GetReferrers(ctx context.Context, r *pb.GetReferrersRequest) (*pb.Referrers, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	referrers, truncated, err := s.Registry.Referrers(ctx, repo, r.GetDigest(), r.GetAfter())
	if err != nil {
		return nil, err
	}
	p := &pb.Referrers{Incomplete: truncated}
	for _, a := range referrers {
		p.Referrers = append(p.Referrers, &pb.Referrer{
			Digest: a.Digest, MediaType: a.MediaType, ArtifactType: a.ArtifactType, Size: a.Size, Annotations: a.Annotations,
		})
	}
	return p, nil
}

func (s *server) GetImage(ctx context.Context, r *pb.GetImageRequest) (*pb.Image, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	d, err := s.Registry.Describe(ctx, repo, r.GetReference())
	if err != nil {
		return nil, err
	}
	variants := wire.Convert(d.Variants, variantOf)
	for _, v := range variants {
		if v.Inspection, err = s.Inspect(ctx, repo, v.GetDigest()); err != nil {
			return nil, err
		}
	}
	return &pb.Image{
		RepoUid: string(repo), Digest: d.Digest, MediaType: d.MediaType, ArtifactType: d.ArtifactType, Subject: d.Subject,
		Annotations: d.Annotations, Variants: variants, PushTime: wire.Time(d.PushTime),
	}, nil
}

func (s *server) SummarizeImages(
	ctx context.Context, r *pb.SummarizeImagesRequest,
) (*pb.SummarizeImagesResponse, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	summaries, err := s.Registry.Summarize(ctx, repo, r.GetDigests())
	return &pb.SummarizeImagesResponse{Summaries: wire.Convert(summaries, func(s metadata.Summary) *pb.ImageSummary {
		return &pb.ImageSummary{
			Digest: s.Digest, Platforms: s.Platforms, Size: s.Size, PullCount: s.Pulls, LastPullTime: wire.Time(s.LastPull),
			Signers: s.Signers,
		}
	})}, err
}

func variantOf(v metadata.DescribedVariant) *pb.Variant {
	c := v.Config
	return &pb.Variant{
		Digest: v.Digest, Os: v.OS, Architecture: v.Architecture, Variant: v.Variant.Variant, Size: v.Size,
		Layers: int32(v.Layers), Steps: wire.Convert(v.Steps, stepOf),
		Config: &pb.ImageConfig{
			CreateTime: wire.Time(c.Created), User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
			WorkingDir: c.WorkingDir, ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Labels: c.Labels,
		},
	}
}

func stepOf(s metadata.Step) *pb.Step {
	return &pb.Step{
		Digest: s.Digest, MediaType: s.MediaType, Size: s.Size, Command: s.Command, CreateTime: wire.Time(s.Time),
	}
}

func (s *server) ListTagHistory(ctx context.Context, r *pb.ListTagHistoryRequest) (*pb.ListTagHistoryResponse, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if r.GetRepoUid() == "" && r.GetPageToken() != "" {
		err = nil // the page token contains the UID of the repo
	}
	if err != nil {
		return nil, err
	}
	moves, err := s.Registry.TagHistory(ctx, repo, r.GetTag(), wire.Params(r))
	p := wire.PageOf(ctx, moves, func(m registry.TagMove) *pb.TagChange {
		return &pb.TagChange{Tag: m.Name, Digest: m.Digest, Time: wire.Time(m.Time), ActorUid: string(m.Actor.Subject)}
	})
	return &pb.ListTagHistoryResponse{
		Changes: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

// pullOf converts a pull or a push to a message.
func pullOf(p metadata.NamedPull) *pb.Pull {
	direction := pb.Direction_DIRECTION_PULL
	if p.Push {
		direction = pb.Direction_DIRECTION_PUSH
	}
	return &pb.Pull{
		Uid: string(p.UID), RepoUid: string(p.Repo()), Digest: p.Digest, Tag: p.Tag, Direction: direction,
		IdentityUid: string(p.Identity), RemoteAddress: p.Remote, UserAgent: p.Agent, CreateTime: wire.Time(p.Time),
		Repo: p.Path, Identity: p.By, Count: 1 + p.More,
	}
}

func (s *server) ListPulls(ctx context.Context, r *pb.ListPullsRequest) (*pb.ListPullsResponse, error) {
	identity, err := wire.OptionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{
		UIDs: wire.UIDFilter(r.GetUidp()), Digest: r.GetDigest(), Direction: resource.Direction(r.GetDirection()),
		Identity: identity,
	}
	p, err := wire.List(ctx, r, f, s.Registry.ListPulls, pullOf)
	return &pb.ListPullsResponse{Pulls: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) GetRegistry(context.Context, *pb.GetRegistryRequest) (*pb.Registry, error) {
	return &pb.Registry{Host: s.Registry.Host()}, nil
}
