package registryapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (s *server) GetArchitectures(ctx context.Context, r *pb.GetArchitecturesRequest) (*pb.Architectures, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	architectures, err := s.Registry.Architectures(ctx, repo, r.GetDigest())
	return &pb.Architectures{Architectures: architectures}, err
}

func (s *server) GetSize(ctx context.Context, r *pb.GetSizeRequest) (*pb.Size, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	size, architecture, err := s.Registry.Size(ctx, repo, r.GetDigest(), r.GetArchitecture())
	return &pb.Size{Size: size, Architecture: architecture}, err
}
