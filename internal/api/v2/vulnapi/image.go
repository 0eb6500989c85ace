package vulnapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
)

func (s *server) CheckImages(ctx context.Context, r *pb.CheckImagesRequest) (*pb.CheckImagesResponse, error) {
	got, err := s.Images.Check(ctx, r.GetImages(), r.GetPlatforms())
	if err != nil {
		return nil, err
	}
	return &pb.CheckImagesResponse{Checks: wire.Convert(got, func(c policy.ImageCheck) *pb.ImageCheck {
		return &pb.ImageCheck{
			Image: c.Image, Decision: pb.ImageDecision(c.Decision), Reason: c.Reason, Digest: c.Digest,
			RepoUid: string(c.Repo), Platform: c.Platform,
		}
	})}, nil
}
