package registryapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

func imageCopyOf(c registry.ImageCopy) *pb.ImageCopy {
	return &pb.ImageCopy{
		RepoUid: string(c.Repo), FromRepoUid: string(c.From), Manifests: int64(c.Manifests), Bytes: c.Bytes,
		Promoted: c.Promoted,
		Reason:   c.Reason, ActorUid: string(c.By),
		Images: wire.Convert(c.Images, func(i registry.CopiedImage) *pb.CopiedImage {
			return &pb.CopiedImage{
				Digest: i.Digest, Tag: i.Tag, FromTag: i.FromTag, ReplacedDigest: i.Replaced, Present: i.Present,
			}
		}),
	}
}

func (s *server) CopyImages(ctx context.Context, r *pb.CopyImagesRequest) (*pb.ImageCopy, error) {
	from, err := resource.ParseUID("from_repo_uid", r.GetFromRepoUid())
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, group resource.UID) (registry.ImageCopy, error) {
		return s.Registry.CopyImages(ctx, registry.CopyRequest{
			Group: group, Repo: r.GetRepo(), From: from, References: r.GetReferences(), TagPattern: r.GetTagPattern(),
			Tag:           r.GetTag(),
			WithReferrers: r.GetWithReferrers(), Promote: r.GetPromote(), Reason: r.GetReason(),
		})
	}
	return wire.Get(ctx, "group_uid", r.GetGroupUid(), do, imageCopyOf)
}
