package budget

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	flushEvery  = time.Second // interval for exchanging pull counts with other replicas
	surveyEvery = time.Minute // interval for counting NearlyUsed
	pruneEvery  = time.Hour   // interval for removing old pull counts
)

// Run writes pulls, counts NearlyUsed and removes old pull counts until ctx ends. It always returns nil.
func (s *Service) Run(ctx context.Context) error {
	flush, survey, prune := time.NewTicker(flushEvery), time.NewTicker(surveyEvery), time.NewTicker(pruneEvery)
	defer flush.Stop()
	defer survey.Stop()
	defer prune.Stop()
	s.try(ctx, "remove old pull counts", s.prune)
	s.try(ctx, "survey budgets", s.Survey)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-flush.C:
			s.try(ctx, "count pulls", s.Flush)
		case <-survey.C:
			s.try(ctx, "survey budgets", s.Survey)
		case <-prune.C:
			s.try(ctx, "remove old pull counts", s.prune)
		}
	}
}

// try calls f and logs its error as the error of an operation. Run tries again later.
func (s *Service) try(ctx context.Context, operation string, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, operation, "err", err)
	}
}

// prune removes the pull counts of the days before yesterday.
func (s *Service) prune(ctx context.Context) error {
	return s.store.PruneBudgetDays(ctx, s.dayOf("", false).Day-1)
}

// Survey counts the groups for NearlyUsed.
func (s *Service) Survey(ctx context.Context) error {
	if err := s.sweepBuckets(ctx); err != nil {
		return err
	}
	stored, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	var groups []resource.UID
	for _, b := range stored.All() {
		groups = append(groups, b.UID)
	}
	used, err := s.store.UsageOf(ctx, groups)
	if err != nil {
		return err
	}
	nearlyUsed := map[resource.Metric]int64{}
	for _, b := range stored.All() {
		for m, limit := range b.Limits {
			n := used[b.UID][m]
			if m == resource.PullsPerDay {
				if n, err = s.pullsToday(ctx, b.UID, false); err != nil {
					return err
				}
			}
			if _, counted := store.Counters[m]; (counted || m == resource.PullsPerDay) && n >= limit-limit/10 {
				nearlyUsed[m]++
			}
		}
	}
	for m, n := range s.nearlyUsed {
		n.Store(nearlyUsed[m])
	}
	return nil
}
