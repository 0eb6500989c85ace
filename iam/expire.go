package iam

import (
	"context"
	"log/slog"
	"time"
)

const (
	endEvery = time.Second
	endBatch = 100 // bindings in one transaction
)

// Run records bindings that are over, each with its event, until ctx ends, and then returns nil. Every replica may run
// it. Whether a binding counts does not depend on it.
func (s *Service) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	for {
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
