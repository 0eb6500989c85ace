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
	endBatch = 100 // number of bindings that one transaction ends

	pruneEvery = time.Hour
	pruneBatch = 1000 // number of rows that one transaction deletes
)

// Run records the end of bindings and invites, each with its event, deletes old records of past grants, and reports
// unused access, until ctx ends. Then it returns nil. Every replica may run it. Bindings and invites end on time even
// if Run does not run.
func (s *Service) Run(ctx context.Context, log *slog.Logger) error {
	var reports sync.WaitGroup // reports run concurrently, because they take long
	defer reports.Wait()
	reports.Go(func() { s.runReports(ctx, log) })
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	var pruned time.Time
	for {
		if time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			if err := s.prune(ctx); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "delete the old history of grants and old reservations of names", "error", err)
			}
		}
		bindings, err := s.store.EndBindings(ctx, endBatch)
		invites, inviteErr := s.store.EndInvites(ctx, endBatch)
		if err = errors.Join(err, inviteErr); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "record the end of bindings and invites", "error", err)
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

// prune deletes reservations of names that have ended, and the history of grants that is older than
// Config.KeepHistory.
func (s *Service) prune(ctx context.Context) error {
	earliest, _ := s.store.Clock()
	if err := s.names.Prune(ctx, earliest); err != nil || s.cfg.KeepHistory <= 0 {
		return err
	}
	before := earliest.Add(-s.cfg.KeepHistory)
	for {
		n, err := s.past.PruneHistory(ctx, before, pruneBatch)
		if err != nil || n < pruneBatch {
			return err
		}
	}
}
