package iam

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	endEvery = time.Second
	endBatch = 100 // bindings in one transaction

	pruneEvery = time.Hour
	pruneBatch = 1000 // rows in one transaction
)

// Run records bindings and invites that are over, each with its event, deletes old history, and tells what is not used,
// until ctx ends, and then returns nil.
// Every replica may run it. Whether one counts does not depend on it.
func (s *Service) Run(ctx context.Context, log *slog.Logger) error {
	var reports sync.WaitGroup // beside the others, because they take long
	defer reports.Wait()
	reports.Go(func() { s.runReports(ctx, log) })
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
		bindings, err := s.store.EndBindings(ctx, endBatch)
		invites, failed := s.store.EndInvites(ctx, endBatch)
		if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "what is over was not recorded", "error", err)
		}
		if err == nil && max(bindings, invites) == endBatch {
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
		n, err := s.past.PruneHistory(ctx, before, pruneBatch)
		if err != nil || n < pruneBatch {
			return err
		}
	}
}
