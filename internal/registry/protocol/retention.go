package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
)

// What one needs to set rules of retention, and to see what they delete or to run them. Whoever sets rules that run by
// themselves deletes by them, so that takes the same capabilities.
var (
	retentionSetters = []resource.Capability{resource.RepoUpdate, resource.ManifestDelete, resource.TagDelete}
	retentionRunners = []resource.Capability{resource.ManifestDelete, resource.TagDelete, resource.RepoList, resource.TagList}
)

// A RetentionPlan is what rules delete, or would delete, with the names of those who pulled it last.
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
	return s.retention.Retention(ctx, place)
}

// SetRetention makes rules those of a group or a repo. The caller needs repo.update, manifest.delete and tag.delete on it.
func (s *Service) SetRetention(ctx context.Context, r registry.Retention) (registry.Retention, error) {
	if err := s.requireEach(ctx, r.UID, retentionSetters); err != nil {
		return registry.Retention{}, err
	}
	if err := r.Validate(); err != nil {
		return registry.Retention{}, err
	}
	if kept := s.retention.KeepPulls; kept > 0 && kept < time.Duration(r.KeepPulledDays)*24*time.Hour {
		return registry.Retention{}, fault.Field("keep_pulled_days", "must be at most %d, because pulls are recorded for so long here",
			int(kept.Hours()/24))
	}
	return s.retention.SetRetention(ctx, r)
}

// DeleteRetention takes the rules of a group or a repo away. The caller needs repo.update, manifest.delete and tag.delete
// on it.
func (s *Service) DeleteRetention(ctx context.Context, place resource.UID) error {
	if err := s.requireEach(ctx, place, retentionSetters); err != nil {
		return err
	}
	return s.retention.DeleteRetention(ctx, place)
}

// PreviewRetention returns what the rules of a repo would delete now. The caller needs manifest.delete, tag.delete,
// repo.list and tag.list on it, because it locks what it would delete. Who pulled it last is told if the caller has
// identity.list, too.
func (s *Service) PreviewRetention(ctx context.Context, repo resource.UID) (RetentionPlan, error) {
	return s.applyRetention(resource.WithDryRun(ctx), repo, retentiondb.RetentionOrder{})
}

// RunRetention deletes what a preview has, under the rules of PreviewRetention. It returns fault.FailedPrecondition if one
// of its images would stay now, or is another.
func (s *Service) RunRetention(ctx context.Context, repo resource.UID, fingerprint string) (RetentionPlan, error) {
	if err := s.requireEach(ctx, repo, retentionRunners); err != nil {
		return RetentionPlan{}, err
	}
	if fingerprint == "" {
		return RetentionPlan{}, fault.Field("fingerprint", "is required: that of a preview")
	}
	return s.applyRetention(ctx, repo, retentiondb.RetentionOrder{Fingerprint: fingerprint})
}

func (s *Service) applyRetention(
	ctx context.Context, repo resource.UID, order retentiondb.RetentionOrder,
) (plan RetentionPlan, err error) {
	if err := s.requireEach(ctx, repo, retentionRunners); err != nil {
		return plan, err
	}
	plan.RetentionPlan, err = s.images.applyRetention(ctx, repo, order)
	if err != nil {
		return plan, err
	}
	plan.Pullers = map[resource.UID]string{}
	if s.authz.Require(ctx, resource.IdentityList, repo) != nil {
		for i := range plan.Going {
			if last := plan.Going[i].LastPull; last != nil {
				last.Identity = ""
			}
		}
		return plan, nil
	}
	for _, g := range plan.Going {
		if g.LastPull != nil {
			plan.Pullers[g.LastPull.Identity] = ""
		}
	}
	err = fill(ctx, plan.Pullers, s.iam.Identities, func(i resource.Identity) { plan.Pullers[i.UID] = i.Name })
	return plan, err
}

// applyRetention applies rules, when it is the organization's turn: each locks a repo, and on SQLite everybody who writes
// waits.
func (r *Registry) applyRetention(
	ctx context.Context, repo resource.UID, order retentiondb.RetentionOrder,
) (retentiondb.RetentionPlan, error) {
	end, err := r.retaining.Acquire(ctx, repo.Root())
	if err != nil {
		return retentiondb.RetentionPlan{}, err
	}
	defer end()
	return r.retention.ApplyRetention(ctx, repo, order)
}

// retentionRound is how many organizations have a turn in one round.
const retentionRound = 1000

// Retain applies the rules that are due, and returns how many images it deleted. Each organization has one repo at a time,
// and one with much to delete waits for all others in between. It is safe to run beside other replicas. What fails for a
// repo is logged, and the others go on.
func (r *Registry) Retain(ctx context.Context) (images int, _ error) {
	now := r.config.Now()
	unfinished := map[resource.UID]retentiondb.RetentionTurn{} // by organization
	for {
		due, err := r.retention.RetentionDue(ctx, now, retentionRound)
		if err != nil {
			return images, err
		}
		for _, place := range due {
			if _, ok := unfinished[place.Root()]; ok {
				continue
			}
			turn, err := r.retention.TakeRetention(ctx, place, now)
			if err != nil {
				return images, err
			}
			if turn.Repo != "" {
				unfinished[place.Root()] = turn
			}
		}
		if len(due)+len(unfinished) == 0 {
			return images, nil
		}
		for root, turn := range unfinished {
			plan, err := r.applyRetention(ctx, turn.Repo, retentiondb.RetentionOrder{Planned: turn.Rules})
			if ctx.Err() != nil {
				return images, ctx.Err()
			}
			if err != nil && !errors.Is(err, fault.NotFound) { // the repo or the rules may be gone meanwhile
				r.config.Log.WarnContext(ctx, "retention was not applied", "repo", turn.Repo, "err", err)
			}
			if err != nil || !plan.More {
				delete(unfinished, root)
			}
			if err == nil {
				images += len(plan.Going)
			}
		}
	}
}
