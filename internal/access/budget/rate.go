package budget

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Admit returns fault.ResourceExhausted if the group to which the caller of a request belongs, or a group above it,
// makes more requests than its budget allows. authz.Checker.Home says which group that is. So nobody can use up the
// budget of another group. Each replica allows its share: the rate divided by the number of replicas.
//
// If the budgets cannot be read, Admit returns nil, because a rate protects the installation and gives nobody access.
func (s *Service) Admit(ctx context.Context) error {
	budgets := s.rates(ctx)
	if len(budgets) == 0 {
		return nil
	}
	exhausted, wait := s.take(budgets)
	if exhausted == nil {
		return nil
	}
	limit := exhausted.Limits[resource.RequestsPerSecond]
	return fault.TooOften(s.store.Quota(ctx, *exhausted, resource.RequestsPerSecond, limit, ""), wait)
}

// maxDebt is the longest time, in seconds, for which Charge delays the next requests.
const maxDebt = 10

// Charge counts n more requests for a request that Admit has admitted, because it does the work of so many. It never
// refuses, but later requests are refused until the budget has recovered.
func (s *Service) Charge(ctx context.Context, n int) {
	for _, b := range s.rates(ctx) {
		found, ok := s.buckets.Load(b.UID)
		if !ok {
			continue
		}
		held := found.(*bucket)
		held.mu.Lock()
		held.tokens = max(held.tokens-float64(n), min(held.tokens, -maxDebt*held.rate))
		held.mu.Unlock()
	}
}

// rates returns the budgets that limit the requests of the caller.
func (s *Service) rates(ctx context.Context) []resource.Budget {
	caller, ok := authz.CallerFrom(ctx)
	if !ok {
		return nil
	}
	stored, err := s.store.Budgets(ctx)
	if err != nil {
		return nil
	}
	if !stored.Limit(resource.RequestsPerSecond) {
		return nil
	}
	home, err := s.authz.Home(ctx, caller)
	if err != nil || home == "" {
		return nil
	}
	return stored.Above(home, resource.RequestsPerSecond)
}

// take takes a token from the bucket of each budget and returns nil. If a bucket is empty, take returns its budget and
// the time until it has a token, and takes none.
func (s *Service) take(budgets []resource.Budget) (exhausted *resource.Budget, wait time.Duration) {
	currentTime, replicas := s.cfg.Now(), float64(s.store.Replicas())
	held := make([]*bucket, len(budgets))
	for i, b := range budgets { // always in the order from the organization down, so that two requests cannot deadlock
		found, _ := s.buckets.LoadOrStore(b.UID, &bucket{})
		held[i] = found.(*bucket)
		held[i].mu.Lock()
		defer held[i].mu.Unlock()
		held[i].fill(currentTime, float64(b.Limits[resource.RequestsPerSecond])/replicas)
		if held[i].tokens < 1 {
			return &budgets[i], held[i].wait()
		}
	}
	for _, b := range held {
		b.tokens--
	}
	return nil, 0
}

// A bucket has a token for each request that may be made immediately. It holds at most the tokens of one second, but at
// least one token.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	rate   float64   // tokens per second
	filled time.Time // time of the last fill
}

// fill adds the tokens since the last fill.
func (b *bucket) fill(currentTime time.Time, rate float64) {
	capacity := max(rate, 1)
	if b.filled.IsZero() {
		b.tokens = capacity
	}
	b.tokens = min(capacity, b.tokens+rate*max(0, currentTime.Sub(b.filled).Seconds()))
	b.filled, b.rate = currentTime, rate
}

// wait returns the time until the bucket has a token.
func (b *bucket) wait() time.Duration {
	return max(time.Millisecond, time.Duration((1-b.tokens)/b.rate*float64(time.Second)))
}

// sweepBuckets removes the buckets of groups whose budget has no rate.
func (s *Service) sweepBuckets(ctx context.Context) error {
	stored, err := s.store.Budgets(ctx)
	if err != nil {
		return err
	}
	s.buckets.Range(func(key, _ any) bool {
		group := key.(resource.UID)
		if b := stored.Above(group, resource.RequestsPerSecond); len(b) == 0 || b[len(b)-1].UID != group {
			s.buckets.Delete(key)
		}
		return true
	})
	return nil
}
