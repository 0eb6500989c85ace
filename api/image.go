package api

import (
	"context"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/resource"
)

type images struct {
	registrypb.UnsafeImagesServiceServer
	registry *registry.Service
}

// GetArchitectures is of registrypb.ImagesServiceServer.
func (s images) GetArchitectures(ctx context.Context, r *registrypb.GetArchitecturesRequest) (*registrypb.Architectures, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	all, err := s.registry.Architectures(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registrypb.Architectures{Architectures: all}, nil
}

// GetSize is of registrypb.ImagesServiceServer.
func (s images) GetSize(ctx context.Context, r *registrypb.GetSizeRequest) (*registrypb.Size, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	size, architecture, err := s.registry.Size(ctx, repo, r.GetDigest(), r.GetArchitecture())
	if err != nil {
		return nil, err
	}
	return &registrypb.Size{Size: size, Architecture: architecture}, nil
}
