package iam

import (
	"context"
	"log/slog"
	"time"
)

const (
	endEvery = time.Second
	endBatch = 100 // bindings in one transaction

	pruneEvery = time.Hour
	pruneBatch = 1000 // rows in one transaction
)

// Run records bindings that are over, each with its event, and deletes old history, until ctx ends, and then returns nil.
// Every replica may run it. Whether a binding counts does not depend on it.
func (s *Service) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	var pruned time.Time
	for {
		if s.cfg.KeepHistory > 0 && time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			if err := s.pruneHistory(ctx); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "old history of grants was not deleted", "error", err)
			}
		}
		n, err := s.store.EndBindings(ctx, endBatch)
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "bindings that are over were not recorded", "error", err)
		}
		if err == nil && n == endBatch {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// pruneHistory deletes the history of grants that is older than it is kept.
func (s *Service) pruneHistory(ctx context.Context) error {
	earliest, _ := s.store.Clock()
	before := earliest.Add(-s.cfg.KeepHistory)
	for {
		n, err := s.store.PruneHistory(ctx, before, pruneBatch)
		if err != nil || n < pruneBatch {
			return err
		}
	}
}
