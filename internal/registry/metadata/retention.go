package metadata

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
)

// The capabilities to set retention rules, and to preview or run them. Setting rules needs the capabilities to
// delete, because rules may run automatically.
var (
	retentionSetters = []resource.Capability{resource.RepoUpdate, resource.ManifestDelete, resource.TagDelete}
	retentionRunners = []resource.Capability{
		resource.ManifestDelete, resource.TagDelete, resource.RepoList, resource.TagList,
	}
)

// A RetentionPlan lists the images that rules delete or would delete, with the names of those identities that last
// pulled an image and that the caller may see.
type RetentionPlan struct {
	retentiondb.RetentionPlan
	Pullers map[resource.UID]string
}

// GetRetention returns the rules that apply to a group or a repo. The caller needs registry.settings.list on it.
func (s *Service) GetRetention(ctx context.Context, place resource.UID) (registry.Retention, error) {
	if err := s.authz.Require(ctx, resource.RegistrySettingsList, place); err != nil {
		return registry.Retention{}, err
	}
	if _, err := s.store.Repo(ctx, place); errors.Is(err, fault.NotFound) {
		if _, err := s.iam.Group(ctx, place); err != nil {
			return registry.Retention{}, err
		}
	} else if err != nil {
		return registry.Retention{}, err
	}
	return s.rules.Retention(ctx, place)
}

// SetRetention sets the rules of a group or a repo. The caller needs repo.update, manifest.delete and tag.delete on it.
func (s *Service) SetRetention(ctx context.Context, r registry.Retention) (registry.Retention, error) {
	if err := s.requireEach(ctx, r.UID, retentionSetters); err != nil {
		return registry.Retention{}, err
	}
	if err := r.Validate(); err != nil {
		return registry.Retention{}, err
	}
	if kept := s.rules.KeepPulls; kept > 0 && kept < time.Duration(r.KeepPulledDays)*24*time.Hour {
		return registry.Retention{}, fault.Field("keep_pulled_days",
			"must be at most %d, because this server keeps the record of pulls for so many days", int(kept.Hours()/24))
	}
	return s.rules.SetRetention(ctx, r)
}

// DeleteRetention deletes the rules of a group or a repo. The caller needs repo.update, manifest.delete and tag.delete
// on it.
func (s *Service) DeleteRetention(ctx context.Context, place resource.UID) error {
	if err := s.requireEach(ctx, place, retentionSetters); err != nil {
		return err
	}
	return s.rules.DeleteRetention(ctx, place)
}

// PreviewRetention returns the images that the rules of a repo would delete now. The caller needs manifest.delete,
// tag.delete, repo.list and tag.list on the repo. It needs the capabilities to delete because a preview locks these
// images. If the caller also holds identity.list, the result contains the identity that last pulled each image, and its
// name if the caller may see it.
func (s *Service) PreviewRetention(ctx context.Context, repo resource.UID) (RetentionPlan, error) {
	return s.applyRetention(resource.WithDryRun(ctx), repo, retentiondb.RetentionOrder{})
}

// RunRetention deletes the images of a preview. The caller needs the capabilities for PreviewRetention. It returns
// fault.FailedPrecondition if the rules now keep one of the images, or if one of the images has changed.
func (s *Service) RunRetention(ctx context.Context, repo resource.UID, fingerprint string) (RetentionPlan, error) {
	if err := s.requireEach(ctx, repo, retentionRunners); err != nil {
		return RetentionPlan{}, err
	}
	if fingerprint == "" {
		return RetentionPlan{}, fault.Field("fingerprint", "is required: run a preview to get one")
	}
	return s.applyRetention(ctx, repo, retentiondb.RetentionOrder{Fingerprint: fingerprint})
}

func (s *Service) applyRetention(
	ctx context.Context, repo resource.UID, order retentiondb.RetentionOrder,
) (plan RetentionPlan, err error) {
	if err := s.requireEach(ctx, repo, retentionRunners); err != nil {
		return plan, err
	}
	plan.RetentionPlan, err = s.retention.Apply(ctx, repo, order)
	if err != nil {
		return plan, err
	}
	named := s.authz.Require(ctx, resource.IdentityList, repo) == nil
	var pullers []resource.UID
	for i := range plan.Going {
		last := plan.Going[i].LastPull
		switch {
		case last != nil && named:
			pullers = append(pullers, last.Identity)
		case last != nil:
			last.Identity = ""
		}
	}
	plan.Pullers, err = s.identityNames(ctx, pullers)
	return plan, err
}
