package registry

import (
	"context"

	"github.com/holdfast-dev/holdfast/resource"
)

// GetSettings returns the rules that hold for the repos of a group; UID says
// whose they are. The caller needs registry.settings.list on it.
func (s *Service) GetSettings(ctx context.Context, group resource.UID) (resource.RegistrySettings, error) {
	if err := s.authz.Require(ctx, resource.RegistrySettingsList, group); err != nil {
		return resource.RegistrySettings{}, err
	}
	if _, err := s.iam.Group(ctx, group); err != nil {
		return resource.RegistrySettings{}, err
	}
	return s.store.RegistrySettings(ctx, group)
}

// UpdateSettings gives a group rules of its own: change is applied to those that
// hold for it now. The caller needs groups.update on it, for the rules are the
// group's, and no role has registry.settings.update.
func (s *Service) UpdateSettings(ctx context.Context, group resource.UID, change func(*resource.RegistrySettings) error) (resource.RegistrySettings, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, group); err != nil {
		return resource.RegistrySettings{}, err
	}
	return s.store.UpdateRegistrySettings(ctx, group, func(r *resource.RegistrySettings) error {
		if err := change(r); err != nil {
			return err
		}
		return r.Validate()
	})
}

// DeleteSettings takes a group's own rules away. The caller needs groups.update
// on it.
func (s *Service) DeleteSettings(ctx context.Context, group resource.UID) error {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, group); err != nil {
		return err
	}
	return s.store.DeleteRegistrySettings(ctx, group)
}
