package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/resource"
)

type repos struct {
	registrypb.UnsafeReposServiceServer
	registry *registry.Service
}

// repoOf writes a repo.
func repoOf(r resource.Repo) *registrypb.Repo {
	p := &registrypb.Repo{
		Uid: string(r.UID), Name: r.Name, Description: r.Description, CatalogTier: registrypb.CatalogTier(r.Tier),
		Bundles: r.Bundles, Aliases: r.Aliases, ActiveTags: r.ActiveTags,
		CreateTime: timeOf(r.CreateTime), UpdateTime: timeOf(r.UpdateTime),
	}
	if s := r.Sync; s != nil {
		p.SyncConfig = &registrypb.SyncConfig{
			Source: s.Source, UniqueTags: s.UniqueTags, ExpirationTime: timeOf(s.ExpirationTime),
			Google: s.Google, Amazon: s.Amazon, Azure: s.Azure, ApkoOverlay: s.ApkoOverlay, GracePeriod: s.GracePeriod,
		}
	}
	return p
}

// readRepo reads into r what clients may set. It returns
// fault.FailedPrecondition for an overlay: this service builds no images.
func readRepo(p *registrypb.Repo, r *resource.Repo) error {
	if p.GetCustomOverlay() != nil {
		return fault.Unmet("CUSTOM_ASSEMBLY_OFF", "custom_overlay: this server does not assemble images")
	}
	r.Name, r.Description, r.Tier = p.GetName(), p.GetDescription(), resource.CatalogTier(p.GetCatalogTier())
	r.Bundles, r.Aliases, r.ActiveTags = p.GetBundles(), p.GetAliases(), p.GetActiveTags()
	from := p.GetSyncConfig()
	if from == nil {
		r.Sync = nil
		return nil
	}
	var kept resource.SyncConfig // what only the service sets stays as it is
	if r.Sync != nil {
		kept = *r.Sync
	}
	kept.Source, kept.Google, kept.Amazon, kept.Azure = from.GetSource(), from.GetGoogle(), from.GetAmazon(), from.GetAzure()
	r.Sync = &kept
	return nil
}

// CreateRepo is of registrypb.ReposServiceServer.
func (s repos) CreateRepo(ctx context.Context, r *registrypb.CreateRepoRequest) (*registrypb.Repo, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var repo resource.Repo
	if err := readRepo(r.GetRepo(), &repo); err != nil {
		return nil, err
	}
	repo, err = s.registry.CreateRepo(ctx, parent, repo)
	if err != nil {
		return nil, err
	}
	return repoOf(repo), nil
}

// GetRepo is of registrypb.ReposServiceServer.
func (s repos) GetRepo(ctx context.Context, r *registrypb.GetRepoRequest) (*registrypb.Repo, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	repo, err := s.registry.GetRepo(ctx, uid)
	if err != nil {
		return nil, err
	}
	return repoOf(repo), nil
}

// UpdateRepo is of registrypb.ReposServiceServer.
func (s repos) UpdateRepo(ctx context.Context, r *registrypb.UpdateRepoRequest) (*registrypb.Repo, error) {
	if r.GetRepo() == nil {
		return nil, fault.Field("repo", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetRepo().GetUid())
	if err != nil {
		return nil, err
	}
	repo, err := s.registry.UpdateRepo(ctx, uid, func(repo *resource.Repo) error {
		p := repoOf(*repo)
		if err := apply(r.GetUpdateMask(), r.GetRepo(), p); err != nil {
			return err
		}
		return readRepo(p, repo)
	})
	if err != nil {
		return nil, err
	}
	return repoOf(repo), nil
}

// DeleteRepo is of registrypb.ReposServiceServer.
func (s repos) DeleteRepo(ctx context.Context, r *registrypb.DeleteRepoRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.registry.DeleteRepo(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListRepos is of registrypb.ReposServiceServer.
func (s repos) ListRepos(ctx context.Context, r *registrypb.ListReposRequest) (*registrypb.ListReposResponse, error) {
	p, err := s.registry.ListRepos(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &registrypb.ListReposResponse{
		Repos: convert(p.Items, repoOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// GetRepoReadme is of registrypb.ReposServiceServer.
func (s repos) GetRepoReadme(ctx context.Context, r *registrypb.GetRepoReadmeRequest) (*registrypb.RepoReadme, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	readme, err := s.registry.GetRepoReadme(ctx, uid)
	if err != nil {
		return nil, err
	}
	return &registrypb.RepoReadme{Uid: string(readme.UID), Content: readme.Content}, nil
}

// UpdateRepoReadme is of registrypb.ReposServiceServer.
func (s repos) UpdateRepoReadme(ctx context.Context, r *registrypb.UpdateRepoReadmeRequest) (*registrypb.RepoReadme, error) {
	if r.GetRepoReadme() == nil {
		return nil, fault.Field("repo_readme", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetRepoReadme().GetUid())
	if err != nil {
		return nil, err
	}
	readme, err := s.registry.UpdateRepoReadme(ctx, uid, func(readme *resource.RepoReadme) error {
		p := &registrypb.RepoReadme{Content: readme.Content}
		if err := apply(r.GetUpdateMask(), r.GetRepoReadme(), p); err != nil {
			return err
		}
		readme.Content = p.GetContent()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &registrypb.RepoReadme{Uid: string(readme.UID), Content: readme.Content}, nil
}
