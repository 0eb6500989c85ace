package registryapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// RepoOf converts a repo to a message.
func RepoOf(r registry.Repo) *pb.Repo {
	p := &pb.Repo{
		Uid: string(r.UID), Name: r.Name, Description: r.Description, CatalogTier: pb.CatalogTier(r.Tier),
		Bundles: r.Bundles, Aliases: r.Aliases, ActiveTags: r.ActiveTags,
		CreateTime: wire.Time(r.CreateTime), UpdateTime: wire.Time(r.UpdateTime),
	}
	if s := r.Sync; s != nil {
		p.SyncConfig = &pb.SyncConfig{
			Source: s.Source, UniqueTags: s.UniqueTags, ExpirationTime: wire.Time(s.ExpirationTime),
			Google: s.Google, Amazon: s.Amazon, Azure: s.Azure, ApkoOverlay: s.ApkoOverlay, GracePeriod: s.GracePeriod,
		}
	}
	return p
}

// ReadRepo copies the fields that clients may set from p to r. It returns
// fault.FailedPrecondition for an overlay, because this service builds no images.
func ReadRepo(p *pb.Repo, r *registry.Repo) error {
	if p.GetCustomOverlay() != nil {
		return fault.Unmet("CUSTOM_ASSEMBLY_OFF", "custom_overlay: this server does not assemble images")
	}
	r.Name, r.Description, r.Tier = p.GetName(), p.GetDescription(), registry.CatalogTier(p.GetCatalogTier())
	r.Bundles, r.Aliases, r.ActiveTags = p.GetBundles(), p.GetAliases(), p.GetActiveTags()
	from := p.GetSyncConfig()
	if from == nil {
		r.Sync = nil
		return nil
	}
	var sync registry.SyncConfig // copies only some fields, because only the service sets the others
	if r.Sync != nil {
		sync = *r.Sync
	}
	sync.Source, sync.Google = from.GetSource(), from.GetGoogle()
	sync.Amazon, sync.Azure = from.GetAmazon(), from.GetAzure()
	r.Sync = &sync
	return nil
}

func (s *server) CreateRepo(ctx context.Context, r *pb.CreateRepoRequest) (*pb.Repo, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetRepo(), ReadRepo, s.Registry.CreateRepo, RepoOf)
}

func (s *server) GetRepo(ctx context.Context, r *pb.GetRepoRequest) (*pb.Repo, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetRepo, RepoOf)
}

func (s *server) UpdateRepo(ctx context.Context, r *pb.UpdateRepoRequest) (*pb.Repo, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "repo", r.GetRepo(), ReadRepo, s.Registry.UpdateRepo, RepoOf)
}

func (s *server) DeleteRepo(ctx context.Context, r *pb.DeleteRepoRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteRepo)
}

func (s *server) ListRepos(ctx context.Context, r *pb.ListReposRequest) (*pb.ListReposResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r),
		s.Registry.ListRepos, RepoOf)
	return &pb.ListReposResponse{
		Repos: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) GetRepoReadme(ctx context.Context, r *pb.GetRepoReadmeRequest) (*pb.RepoReadme, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetRepoReadme, readmeOf)
}

func readmeOf(r registry.RepoReadme) *pb.RepoReadme {
	return &pb.RepoReadme{Uid: string(r.UID), Content: r.Content}
}

func readReadme(p *pb.RepoReadme, r *registry.RepoReadme) error {
	r.Content = p.GetContent()
	return nil
}

func (s *server) UpdateRepoReadme(ctx context.Context, r *pb.UpdateRepoReadmeRequest) (*pb.RepoReadme, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "repo_readme", r.GetRepoReadme(), readReadme,
		s.Registry.UpdateRepoReadme, readmeOf)
}
