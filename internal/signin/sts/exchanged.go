package sts

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// exchangesWaiting is how many identities can have an exchange that is to be written; those of
// more are dropped.
const exchangesWaiting = 1024

// Exchanges returns the last exchanges of an identity that succeeded, newest first. The caller
// needs identity.list on it.
func (s *Service) Exchanges(ctx context.Context, uid resource.UID) ([]resource.Exchange, error) {
	if err := s.authz.Require(ctx, resource.IdentityList, uid); err != nil {
		return nil, err
	}
	if _, err := s.store.Identity(ctx, uid); err != nil {
		return nil, err
	}
	return s.store.Exchanges(ctx, uid)
}

// An exchanged has the exchanges that are to be written: the last one of each identity, so that
// nobody causes more than one write a second, however often they come.
type exchanged struct {
	mu   sync.Mutex
	last map[resource.UID]resource.Exchange
}

func (x *exchanged) add(e resource.Exchange) {
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

// take returns what has to be written, in the order of the identities, which is the one that
// all replicas write in.
func (x *exchanged) take() []resource.Exchange {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]resource.Exchange, 0, len(x.last))
	for _, uid := range slices.Sorted(maps.Keys(x.last)) {
		all = append(all, x.last[uid])
	}
	clear(x.last)
	return all
}

// recordExchange notes an exchange for those who may read the identity.
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
	if err := s.store.RecordExchanges(ctx, batch); err != nil {
		s.log.WarnContext(ctx, "exchanges were not kept", "count", len(batch), "err", err)
	}
}
