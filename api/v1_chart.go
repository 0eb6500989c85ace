package api

import (
	"context"
	"strings"

	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
)

// GetHelm is of registryv1pb.RegistryServer.
func (s registryV1) GetHelm(ctx context.Context, r *registryv1pb.HelmRequest) (*registryv1pb.Helm, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.TaggedChart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.Helm{
		ChartName: c.Name, ChartVersion: c.Version, ChartRepository: c.Address[:strings.LastIndexByte(c.Address, '/')], ChartDigest: r.GetDigest(),
		Values: c.Files[evidence.ValuesYAML],
	}, nil
}

// GetChart is of registryv1pb.RegistryServer.
func (s registryV1) GetChart(ctx context.Context, r *registryv1pb.GetChartRequest) (*registryv1pb.Chart, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.Chart(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.Chart{
		Name: c.Name, Version: c.Version, AppVersion: c.AppVersion, Description: c.Description, Annotations: c.Annotations,
		Dependencies: convert(c.Dependencies, func(d evidence.ChartDependency) *registryv1pb.ChartDependency {
			return &registryv1pb.ChartDependency{Name: d.Name, Version: d.Version, Repository: d.Repository}
		}),
		Images: convert(c.Images, func(i evidence.ChartImage) *registryv1pb.ChartImage {
			return &registryv1pb.ChartImage{Name: i.Name, Image: i.Image, RepoName: i.Repo()}
		}),
		Raw: c.Files[evidence.ChartYAML], Values: c.Files[evidence.ValuesYAML], Changelog: c.Files[evidence.Changelog],
	}, nil
}

// ListChartsByImageRepo is of registryv1pb.RegistryServer. There is no catalog,
// so no chart of it runs the image.
func (s registryV1) ListChartsByImageRepo(ctx context.Context, r *registryv1pb.ListChartsByImageRepoRequest) (*registryv1pb.ListChartsByImageRepoResponse, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	if _, err := s.registry.GetRepo(ctx, repo); err != nil {
		return nil, err
	}
	return &registryv1pb.ListChartsByImageRepoResponse{}, nil
}

func deploymentV1(d resource.Deployment) *registryv1pb.Deployment {
	return &registryv1pb.Deployment{Id: string(d.UID), Charts: convert(d.Charts, func(c resource.HelmChart) *registryv1pb.HelmChart {
		return &registryv1pb.HelmChart{Source: c.Source, Repo: c.Repo, Chart: c.Chart}
	})}
}

func readChartsV1(charts []*registryv1pb.HelmChart) []resource.HelmChart {
	return convert(charts, func(c *registryv1pb.HelmChart) resource.HelmChart {
		return resource.HelmChart{Source: c.Source, Repo: c.GetRepo(), Chart: c.Chart}
	})
}

// CreateDeployment is of registryv1pb.RegistryServer.
func (s registryV1) CreateDeployment(ctx context.Context, r *registryv1pb.CreateDeploymentRequest) (*registryv1pb.Deployment, error) {
	repo, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	d, err := s.registry.CreateDeployment(ctx, resource.Deployment{UID: repo, Charts: readChartsV1(r.GetCharts())})
	if err != nil {
		return nil, err
	}
	return deploymentV1(d), nil
}

// UpdateDeployment is of registryv1pb.RegistryServer.
func (s registryV1) UpdateDeployment(ctx context.Context, r *registryv1pb.UpdateDeploymentRequest) (*registryv1pb.Deployment, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	d, err := s.registry.UpdateDeployment(ctx, repo, func(d *resource.Deployment) error {
		d.Charts = readChartsV1(r.GetCharts())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return deploymentV1(d), nil
}

// GetDeployment is of registryv1pb.RegistryServer.
func (s registryV1) GetDeployment(ctx context.Context, r *registryv1pb.GetDeploymentRequest) (*registryv1pb.Deployment, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	d, err := s.registry.GetDeployment(ctx, repo)
	if err != nil {
		return nil, err
	}
	return deploymentV1(d), nil
}
