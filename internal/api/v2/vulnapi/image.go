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
	return &pb.CheckImagesResponse{Checks: wire.Convert(got, imageCheckOf)}, nil
}

func imageCheckOf(c policy.ImageCheck) *pb.ImageCheck {
	return &pb.ImageCheck{
		Image: c.Image, Decision: pb.ImageDecision(c.Decision), Reason: c.Reason, Digest: c.Digest,
		RepoUid: string(c.Repo), Platform: c.Platform,
	}
}

// checkRunning adds to running images whether the caller could pull them.
func (s *server) checkRunning(ctx context.Context, images []*pb.RunningImage) error {
	checks, err := s.Images.CheckRunning(ctx, wire.Convert(images, func(r *pb.RunningImage) policy.RunningImage {
		e := r.GetEntry()
		return policy.RunningImage{Image: e.GetImage(), Digest: e.GetDigest(), Platform: e.GetPlatform()}
	}))
	for i, c := range checks {
		images[i].Check = imageCheckOf(c)
	}
	return err
}
