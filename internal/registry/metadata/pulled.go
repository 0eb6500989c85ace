package metadata

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// PulledBy returns the repos of an organization from which an identity has pulled since a time, most recently pulled
// first. It reads the newest n records of pulls; complete is false if there are older records. It does not authorize
// the caller.
func (s *Service) PulledBy(
	ctx context.Context, org, identity resource.UID, since time.Time, n int,
) (all []registry.PulledRepo, complete bool, _ error) {
	found, complete, err := s.pullRecords.PulledBy(ctx, org, identity, since, n)
	if err != nil {
		return nil, false, err
	}
	uids := make([]resource.UID, len(found))
	for i, r := range found {
		uids[i] = r.Repo
	}
	paths, err := s.Paths(ctx, uids)
	if err != nil {
		return nil, false, err
	}
	public := map[resource.UID]bool{}
	for _, r := range found {
		group := r.Repo.Parent()
		if _, known := public[group]; !known {
			set, err := s.store.RegistrySettings(ctx, group)
			if err != nil {
				return nil, false, err
			}
			public[group] = set.Public
		}
		all = append(all, registry.PulledRepo{
			Repo: r.Repo, Path: paths[r.Repo], Public: public[group], Count: r.Count, Last: r.Last,
		})
	}
	return all, complete, nil
}
