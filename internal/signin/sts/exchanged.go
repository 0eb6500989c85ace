package sts

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// exchangesWaiting is the greatest number of identities with an exchange that is not yet written. Exchanges of further
// identities are dropped.
const exchangesWaiting = 1024

// Exchanges returns the recent successful exchanges of an identity, newest first. The
// caller needs identity.list on it.
func (s *Service) Exchanges(ctx context.Context, uid resource.UID) ([]resource.Exchange, error) {
	if err := s.authz.Require(ctx, resource.IdentityList, uid); err != nil {
		return nil, err
	}
	if _, err := s.store.Identity(ctx, uid); err != nil {
		return nil, err
	}
	return s.records.Exchanges(ctx, uid)
}

// An exchangeQueue holds the exchanges that are not yet written. It keeps only the
// latest exchange of each identity, so that an identity causes at most one write a
// second. It is safe for concurrent use.
type exchangeQueue struct {
	mu   sync.Mutex
	last map[resource.UID]resource.Exchange
}

func (x *exchangeQueue) add(e resource.Exchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, known := x.last[e.Identity]
	if !known && len(x.last) >= exchangesWaiting {
		return
	}
	if x.last == nil {
		x.last = make(map[resource.UID]resource.Exchange)
	}
	e.Count = before.Count + 1
	x.last[e.Identity] = e
}

// take returns and removes the queued exchanges, ordered by identity. All replicas
// write in this order.
func (x *exchangeQueue) take() []resource.Exchange {
	x.mu.Lock()
	defer x.mu.Unlock()
	queued := make([]resource.Exchange, 0, len(x.last))
	for _, uid := range slices.Sorted(maps.Keys(x.last)) {
		queued = append(queued, x.last[uid])
	}
	clear(x.last)
	return queued
}

// recordExchange queues a successful exchange.
func (s *Service) recordExchange(ctx context.Context, p *principal, from provenance, audience []string) {
	actor := resource.ActorFrom(ctx)
	s.exchanged.add(resource.Exchange{
		Identity: p.identity.UID, Time: s.now().UTC(), RequestID: actor.RequestID, Remote: actor.Remote,
		Issuer: truncated(from.act.Issuer), Subject: truncated(from.act.Subject), Audience: audience,
	})
}

func (s *Service) flushExchanges(ctx context.Context) {
	batch := s.exchanged.take()
	if len(batch) == 0 {
		return
	}
	if err := s.records.RecordExchanges(ctx, batch); err != nil {
		s.log.WarnContext(ctx, "write exchanges", "count", len(batch), "err", err)
	}
}
