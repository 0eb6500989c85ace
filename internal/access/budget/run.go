package budget

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
)

const (
	flushEvery   = time.Second // exchange of pull counts with other replicas
	surveyEvery  = time.Minute // count of NearlyUsed
	recountEvery = time.Hour   // comparison of the counters of stored bytes with the stored rows
)

// Run writes pulls, counts NearlyUsed and corrects the counters of stored bytes until ctx ends. It always returns nil.
func (s *Service) Run(ctx context.Context) error {
	flush, survey, recount := time.NewTicker(flushEvery), time.NewTicker(surveyEvery), time.NewTicker(recountEvery)
	defer flush.Stop()
	defer survey.Stop()
	defer recount.Stop()
	s.try(ctx, "count stored bytes", s.recount)
	s.try(ctx, "survey budgets", s.Survey)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-flush.C:
			s.try(ctx, "count pulls", s.Flush)
		case <-survey.C:
			s.try(ctx, "survey budgets", s.Survey)
		case <-recount.C:
			s.try(ctx, "count stored bytes", s.recount)
		}
	}
}

// try calls f and logs its error as the error of an operation. Run calls it again later.
func (s *Service) try(ctx context.Context, operation string, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, operation, "err", err)
	}
}

// recount corrects the counters of stored bytes, and removes budgets of deleted groups and old pull counts.
func (s *Service) recount(ctx context.Context) error {
	n, err := recount.Bytes(ctx, s.store.DB)
	if n > 0 {
		s.cfg.Log.InfoContext(ctx, "corrected counters of stored bytes", "count", n)
	}
	if err != nil {
		return err
	}
	return s.store.SweepBudgets(ctx, s.dayOf("", false).Day-1)
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
