package v1

import (
	"context"
	"strings"

	v2 "github.com/holdfast-dev/holdfast/api/v2"
	"github.com/holdfast-dev/holdfast/api/wire"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
)

func (s registries) GetHelm(ctx context.Context, r *registrypb.HelmRequest) (*registrypb.Helm, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.TaggedChart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registrypb.Helm{
		ChartName: c.Name, ChartVersion: c.Version, ChartRepository: c.Address[:strings.LastIndexByte(c.Address, '/')],
		ChartDigest: r.GetDigest(), Values: c.Files[evidence.ValuesYAML],
	}, nil
}

func (s registries) GetChart(ctx context.Context, r *registrypb.GetChartRequest) (*registrypb.Chart, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.Chart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registrypb.Chart{
		Name: c.Name, Version: c.Version, AppVersion: c.AppVersion, Description: c.Description, Annotations: c.Annotations,
		Dependencies: wire.Convert(c.Dependencies, func(d evidence.ChartDependency) *registrypb.ChartDependency {
			return &registrypb.ChartDependency{Name: d.Name, Version: d.Version, Repository: d.Repository}
		}),
		Images: wire.Convert(c.Images, func(i evidence.ChartImage) *registrypb.ChartImage {
			return &registrypb.ChartImage{Name: i.Name, Image: i.Image, RepoName: i.Repo()}
		}),
		Raw: c.Files[evidence.ChartYAML], Values: c.Files[evidence.ValuesYAML], Changelog: c.Files[evidence.Changelog],
	}, nil
}

// ListChartsByImageRepo returns no charts, because there is no catalog of them.
func (s registries) ListChartsByImageRepo(ctx context.Context, r *registrypb.ListChartsByImageRepoRequest) (*registrypb.ListChartsByImageRepoResponse, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.GetRepo, func(resource.Repo) *registrypb.ListChartsByImageRepoResponse {
		return &registrypb.ListChartsByImageRepoResponse{}
	})
}

func readCharts(charts []*registrypb.HelmChart, d *resource.Deployment) error {
	d.Charts = wire.Convert(charts, func(c *registrypb.HelmChart) resource.HelmChart {
		return resource.HelmChart{Source: c.Source, Repo: c.GetRepo(), Chart: c.Chart}
	})
	return nil
}

func (s registries) CreateDeployment(ctx context.Context, r *registrypb.CreateDeploymentRequest) (*registrypb.Deployment, error) {
	create := func(ctx context.Context, repo resource.UID, d resource.Deployment) (resource.Deployment, error) {
		d.UID = repo
		return s.registry.CreateDeployment(ctx, d)
	}
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetCharts(), readCharts, create, v2.DeploymentOf)
}

func (s registries) UpdateDeployment(ctx context.Context, r *registrypb.UpdateDeploymentRequest) (*registrypb.Deployment, error) {
	return wire.Replace(ctx, "repo_id", r.GetRepoId(), r.GetCharts(), readCharts, s.registry.UpdateDeployment,
		v2.DeploymentOf)
}

func (s registries) GetDeployment(ctx context.Context, r *registrypb.GetDeploymentRequest) (*registrypb.Deployment, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.GetDeployment, v2.DeploymentOf)
}
