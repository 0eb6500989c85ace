package event

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
)

// tested is the type of the events that are sent to test a subscription. They are about no
// change, so the outbox has none.
const tested resource.EventType = "events.subscription.tested.v1"

// A TestResult tells how a sink has answered an event.
type TestResult struct {
	Event string        // its id
	Error string        // why it was not taken; "" if it was
	Took  time.Duration // until the answer
}

// TestSubscription sends an event to the sink of a subscription at once. The caller needs
// subscriptions.update on it.
func (s *Service) TestSubscription(ctx context.Context, uid resource.UID) (TestResult, error) {
	v, err := authz.Get(ctx, s.authz, resource.SubscriptionsUpdate, uid, s.store.Subscription)
	if err != nil {
		return TestResult{}, err
	}
	end, err := s.tests.begin(uid, time.Now())
	if err != nil {
		return TestResult{}, err
	}
	defer end()
	e := resource.Event{
		ID: rand.Text(), Type: tested, Subject: uid, Group: v.Group(), Time: s.cfg.Now(), Actor: resource.ActorFrom(ctx),
	}
	start := time.Now()
	err = s.cfg.Test(ctx, v, e)
	out := TestResult{Event: e.ID, Took: time.Since(start).Round(time.Millisecond)}
	if err != nil {
		out.Error = err.Error()
	}
	return out, nil
}

// Test sends an event to the sink of a subscription once, whoever has the lease. It is in no
// queue, so it neither waits for others nor is repeated.
func (d *Dispatcher) Test(ctx context.Context, sub resource.Subscription, e resource.Event) error {
	v, err := encode(d.cfg.Names, d.cfg.Source, e, Body{})
	if err != nil {
		return err
	}
	client := outbound.Client(d.cfg.Reach)
	defer client.CloseIdleConnections()
	_, err = d.post(ctx, recipient{sub, deliveryHeaders(d.cfg.Names, sub), client}, e.ID, v)
	return err
}

const (
	testsEach = time.Minute // in which
	testsMost = 10          // tests of an organization may begin
)

// tests limits how often subscriptions are tested: each is a request to an address that the
// caller has chosen.
type tests struct {
	mu      sync.Mutex
	running map[resource.UID]bool        // by subscription
	begun   map[resource.UID][]time.Time // by organization, in the last minute
}

// begin returns fault.ResourceExhausted if the subscription is being tested, or its
// organization has been testing too often.
func (t *tests) begin(sub resource.UID, now time.Time) (end func(), _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for org, times := range t.begun {
		for len(times) > 0 && now.Sub(times[0]) >= testsEach {
			times = times[1:]
		}
		if t.begun[org] = times; len(times) == 0 {
			delete(t.begun, org)
		}
	}
	org := sub.Root()
	busy := fault.New(fault.ResourceExhausted, "Resource exhausted: subscriptions are being tested too often; try again")
	switch {
	case t.running[sub]:
		busy.RetryIn = 10 * time.Second
		return nil, busy
	case len(t.begun[org]) >= testsMost:
		busy.RetryIn = testsEach - now.Sub(t.begun[org][0])
		return nil, busy
	}
	if t.running == nil {
		t.running, t.begun = map[resource.UID]bool{}, map[resource.UID][]time.Time{}
	}
	t.running[sub] = true
	t.begun[org] = append(t.begun[org], now)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, sub)
	}, nil
}
