package metadata

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// CreateDeployment stores with which charts the images of a repo are deployed. The caller needs repo.update on the
// repo, because the editor role lacks registry.deployments.create and editors should be able to store deployments.
func (s *Service) CreateDeployment(ctx context.Context, d registry.Deployment) (registry.Deployment, error) {
	if err := s.authz.Require(ctx, resource.RepoUpdate, d.UID); err != nil {
		return registry.Deployment{}, err
	}
	if err := d.Validate(); err != nil {
		return registry.Deployment{}, err
	}
	d.CreateTime = s.now()
	d.UpdateTime = d.CreateTime
	return d, s.store.InsertDeployment(ctx, d)
}

// GetDeployment returns the charts with which the images of a repo are deployed. The caller needs
// registry.deployments.list on the repo.
func (s *Service) GetDeployment(ctx context.Context, repo resource.UID) (registry.Deployment, error) {
	return authz.Get(ctx, s.authz, resource.DeploymentsList, repo, s.store.Deployment)
}

// UpdateDeployment applies change to the deployment of a repo. The caller needs repo.update on the repo.
func (s *Service) UpdateDeployment(
	ctx context.Context, repo resource.UID, change func(*registry.Deployment) error,
) (registry.Deployment, error) {
	if err := s.authz.Require(ctx, resource.RepoUpdate, repo); err != nil {
		return registry.Deployment{}, err
	}
	return s.store.UpdateDeployment(ctx, repo, func(d *registry.Deployment) error {
		before := *d
		if err := change(d); err != nil {
			return err
		}
		d.UID, d.CreateTime = before.UID, before.CreateTime
		return d.Validate()
	})
}
