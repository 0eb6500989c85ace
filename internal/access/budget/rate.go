package budget

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Admit returns fault.ResourceExhausted if the group that the caller of a request belongs to, or one above it, makes
// more requests than its budget allows. A workload belongs to the group of its identity, and a person to the group
// whose identity provider vouched for them; so nobody can use up the budget of others. Each replica allows its
// share: the rate divided by the number of replicas.
//
// A rate protects the installation and gives nobody access, so if budgets cannot be read, Admit returns nil.
func (s *Service) Admit(ctx context.Context) error {
	caller, ok := authz.CallerFrom(ctx)
	if !ok {
		return nil
	}
	all, err := s.store.Budgets(ctx)
	if err != nil {
		return nil
	}
	member := caller.Identity
	if member.IsRoot() {
		member = caller.Voucher.Provider()
	}
	if member == "" {
		return nil
	}
	budgets := all.Above(member, resource.RequestsPerSecond)
	if len(budgets) == 0 {
		return nil
	}
	over, wait := s.take(budgets)
	if over == nil {
		return nil
	}
	limit := over.Limits[resource.RequestsPerSecond]
	return fault.TooOften(s.store.Quota(ctx, *over, resource.RequestsPerSecond, limit, ""), wait)
}

// take takes a token from the bucket of each budget, or from none. It returns the budget that has none left, and how
// long it takes until it has one.
func (s *Service) take(budgets []resource.Budget) (over *resource.Budget, wait time.Duration) {
	now, replicas := s.cfg.Now(), float64(s.store.Replicas())
	held := make([]*bucket, len(budgets))
	for i, b := range budgets { // the organization's first, so that two do not wait for each other
		found, _ := s.buckets.LoadOrStore(b.UID, &bucket{})
		held[i] = found.(*bucket)
		held[i].mu.Lock()
		defer held[i].mu.Unlock()
		held[i].fill(now, float64(b.Limits[resource.RequestsPerSecond])/replicas)
		if held[i].tokens < 1 {
			return &budgets[i], held[i].wait()
		}
	}
	for _, b := range held {
		b.tokens--
	}
	return nil, 0
}

// A bucket has a token for each request that may be made at once: what a second gives, and one at least.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	rate   float64 // per second
	at     time.Time
}

func (b *bucket) fill(now time.Time, rate float64) {
	most := max(rate, 1)
	if b.at.IsZero() {
		b.tokens = most
	}
	b.tokens = min(most, b.tokens+rate*max(0, now.Sub(b.at).Seconds()))
	b.at, b.rate = now, rate
}

// wait returns when there will be a token.
func (b *bucket) wait() time.Duration {
	return max(time.Millisecond, time.Duration((1-b.tokens)/b.rate*float64(time.Second)))
}

// sweepBuckets drops the buckets of groups without a rate.
func (s *Service) sweepBuckets(ctx context.Context) error {
	all, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	s.buckets.Range(func(key, _ any) bool {
		group := key.(resource.UID)
		if b := all.Above(group, resource.RequestsPerSecond); len(b) == 0 || b[len(b)-1].UID != group {
			s.buckets.Delete(key)
		}
		return true
	})
	return nil
}
