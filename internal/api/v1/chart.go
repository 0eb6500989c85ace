package v1

import (
	"context"
	"strings"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/internal/api/v2/registryapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
)

func (s registries) GetHelm(ctx context.Context, r *pb.HelmRequest) (*pb.Helm, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.TaggedChart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &pb.Helm{
		ChartName: c.Name, ChartVersion: c.Version, ChartRepository: c.Address[:strings.LastIndexByte(c.Address, '/')],
		ChartDigest: r.GetDigest(), Values: c.Files[evidence.ValuesYAML],
	}, nil
}

func (s registries) GetChart(ctx context.Context, r *pb.GetChartRequest) (*pb.Chart, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.Chart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &pb.Chart{
		Name: c.Name, Version: c.Version, AppVersion: c.AppVersion, Description: c.Description, Annotations: c.Annotations,
		Dependencies: wire.Convert(c.Dependencies, func(d evidence.ChartDependency) *pb.ChartDependency {
			return &pb.ChartDependency{Name: d.Name, Version: d.Version, Repository: d.Repository}
		}),
		Images: wire.Convert(c.Images, func(i evidence.ChartImage) *pb.ChartImage {
			return &pb.ChartImage{Name: i.Name, Image: i.Image, RepoName: i.Repo()}
		}),
		Raw: c.Files[evidence.ChartYAML], Values: c.Files[evidence.ValuesYAML], Changelog: c.Files[evidence.Changelog],
	}, nil
}

// ListChartsByImageRepo returns no charts, because there is no catalog of them.
func (s registries) ListChartsByImageRepo(
	ctx context.Context, r *pb.ListChartsByImageRepoRequest,
) (*pb.ListChartsByImageRepoResponse, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.GetRepo,
		func(registry.Repo) *pb.ListChartsByImageRepoResponse {
			return &pb.ListChartsByImageRepoResponse{}
		})
}

func readCharts(charts []*pb.HelmChart, d *registry.Deployment) error {
	d.Charts = wire.Convert(charts, func(c *pb.HelmChart) registry.HelmChart {
		return registry.HelmChart{Source: c.Source, Repo: c.GetRepo(), Chart: c.Chart}
	})
	return nil
}

func (s registries) CreateDeployment(ctx context.Context, r *pb.CreateDeploymentRequest) (*pb.Deployment, error) {
	create := func(ctx context.Context, repo resource.UID, d registry.Deployment) (registry.Deployment, error) {
		d.UID = repo
		return s.registry.CreateDeployment(ctx, d)
	}
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetCharts(), readCharts, create, registryapi.DeploymentOf)
}

func (s registries) UpdateDeployment(ctx context.Context, r *pb.UpdateDeploymentRequest) (*pb.Deployment, error) {
	return wire.Replace(ctx, "repo_id", r.GetRepoId(), r.GetCharts(), readCharts, s.registry.UpdateDeployment,
		registryapi.DeploymentOf)
}

func (s registries) GetDeployment(ctx context.Context, r *pb.GetDeploymentRequest) (*pb.Deployment, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.GetDeployment, registryapi.DeploymentOf)
}
