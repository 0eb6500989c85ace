package metadata

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// GetSettings returns the settings that apply to the repos of a group. The UID in the result is the group that has
// these settings. The caller needs registry.settings.list on the group.
func (s *Service) GetSettings(ctx context.Context, group resource.UID) (registry.Settings, error) {
	if _, err := authz.Get(ctx, s.authz, resource.RegistrySettingsList, group, s.iam.Group); err != nil {
		return registry.Settings{}, err
	}
	return s.store.RegistrySettings(ctx, group)
}

// UpdateSettings applies change to the settings that apply to a group, and stores the result as the settings of the
// group itself. The caller needs groups.update on the group, because no role has registry.settings.update.
func (s *Service) UpdateSettings(
	ctx context.Context, group resource.UID, change func(*registry.Settings) error,
) (registry.Settings, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, group); err != nil {
		return registry.Settings{}, err
	}
	return s.store.UpdateRegistrySettings(ctx, group, func(r *registry.Settings) error {
		if err := change(r); err != nil {
			return err
		}
		return r.Validate()
	})
}

// DeleteSettings deletes the settings of a group, so that the settings above it apply again. The caller needs
// groups.update on the group.
func (s *Service) DeleteSettings(ctx context.Context, group resource.UID) error {
	return s.authz.Delete(ctx, resource.GroupsUpdate, group, s.store.DeleteRegistrySettings)
}
