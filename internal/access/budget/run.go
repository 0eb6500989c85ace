package budget

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	flushTime   = time.Second // how often pulls are written, and those of other replicas read
	surveyTime  = time.Minute // how often NearlyUsed is counted
	recountTime = time.Hour   // how often stored bytes are compared with what is stored
)

// Run writes pulls, and keeps what is counted right, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	flush, survey, recount := time.NewTicker(flushTime), time.NewTicker(surveyTime), time.NewTicker(recountTime)
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

// try runs work that is tried again later if it fails.
func (s *Service) try(ctx context.Context, what string, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.WarnContext(ctx, what, "err", err)
	}
}

// recount corrects the counters of stored bytes, and removes what nothing refers to.
func (s *Service) recount(ctx context.Context) error {
	n, err := s.store.RecountBytes(ctx)
	if n > 0 {
		s.cfg.Log.InfoContext(ctx, "corrected counters of stored bytes", "count", n)
	}
	if err != nil {
		return err
	}
	return s.store.SweepBudgets(ctx, s.dayOf("", false).Day-1)
}

// Survey counts the groups that have used nine tenths of a budget or more.
func (s *Service) Survey(ctx context.Context) error {
	if err := s.sweepBuckets(ctx); err != nil {
		return err
	}
	all, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	var groups []resource.UID
	for _, b := range all.All() {
		groups = append(groups, b.UID)
	}
	used, err := s.store.UsageOf(ctx, groups)
	if err != nil {
		return err
	}
	nearly := map[resource.Metric]int64{}
	for _, b := range all.All() {
		for m, limit := range b.Limits {
			n := used[b.UID][m]
			if m == resource.PullsPerDay {
				if n, err = s.pullsToday(ctx, b.UID, false); err != nil {
					return err
				}
			}
			if _, counted := store.Counters[m]; (counted || m == resource.PullsPerDay) && n >= limit-limit/10 {
				nearly[m]++
			}
		}
	}
	for m, n := range s.nearly {
		n.Store(nearly[m])
	}
	return nil
}
