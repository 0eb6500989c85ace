package scim

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	departedKept   = 30 * 24 * time.Hour // time for which people whom a directory has deleted keep their bindings
	departureCheck = time.Hour           // time between two checks
	departureBatch = 100                 // people that one check reads at a time
)

// Run removes the bindings of people whom a directory has deleted 30 days ago, until ctx ends. Every replica may run
// it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(departureCheck)
	defer tick.Stop()
	for {
		if err := s.RemoveDeparted(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "remove the roles of people whom a directory has deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RemoveDeparted removes the bindings of people whom a directory has deleted at least 30 days ago, and who have not
// returned, in the organization of the directory.
func (s *Service) RemoveDeparted(ctx context.Context) error {
	for {
		due, err := s.store.Departures(ctx, s.now().Add(-departedKept), departureBatch)
		if err != nil || len(due) == 0 {
			return err
		}
		for _, d := range due {
			if err := s.removeDeparted(ctx, d); err != nil {
				return err
			}
		}
	}
}

func (s *Service) removeDeparted(ctx context.Context, d scimdb.Departure) error {
	p, err := s.iam.ProviderAt(ctx, d.Provider)
	if err != nil {
		return err
	}
	return s.store.Write(ctx, func(tx *store.Tx) error {
		due, err := scimdb.In(tx).Settle(ctx, p.UID, d)
		if err != nil || !due {
			return err
		}
		return iamdb.In(tx).RemoveSuspended(ctx, d.Identity, p.UID)
	})
}
