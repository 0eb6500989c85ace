package event

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// testEventType is the type of the events that test a subscription. The outbox does not contain them, because they
// describe no change.
const testEventType resource.EventType = "events.subscription.tested.v1"

// A TestResult is the response of a sink to a test event.
type TestResult struct {
	Event string        // ID of the event
	Error string        // the reason why the sink did not accept the event, or ""
	Took  time.Duration // time until the response
}

// Resend sends an event of the delivery log of a subscription again, immediately and once. It is like TestSubscription
// otherwise. It returns fault.NotFound if the log or the outbox no longer has the event, and fault.FailedPrecondition
// for a test event.
func (s *Service) Resend(ctx context.Context, uid resource.UID, event string) (TestResult, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsUpdate, uid); err != nil {
		return TestResult{}, err
	}
	v, err := s.store.Subscription(ctx, uid)
	if err != nil {
		return TestResult{}, err
	}
	a, err := s.store.AttemptOf(ctx, uid, event)
	if err != nil {
		return TestResult{}, err
	}
	if a.EventSeq == 0 {
		return TestResult{}, fault.Unmet("TEST_EVENT", "the event was a test, which describes no change; send a new test")
	}
	events, err := outbox.Read(ctx, s.store.DB, a.EventSeq-1, 1)
	if err != nil {
		return TestResult{}, err
	}
	if len(events) == 0 || events[0].ID != event {
		return TestResult{}, fault.New(fault.NotFound, "Not found: the event %q is no longer stored", event)
	}
	return s.sendNow(ctx, v, events[0])
}

// TestSubscription sends a test event to the sink of a subscription and waits for the response. The caller needs
// subscriptions.update on it. It returns fault.ResourceExhausted if subscriptions are tested too often.
func (s *Service) TestSubscription(ctx context.Context, uid resource.UID) (TestResult, error) {
	v, err := authz.Get(ctx, s.authz, resource.SubscriptionsUpdate, uid, s.store.Subscription)
	if err != nil {
		return TestResult{}, err
	}
	return s.sendNow(ctx, v, resource.Event{
		ID: rand.Text(), Type: testEventType, Subject: uid, Group: v.Group(), Time: s.cfg.Now(),
		Actor: resource.ActorFrom(ctx),
	})
}

// sendNow sends an event to a subscription once, and adds the attempt to its delivery log.
func (s *Service) sendNow(ctx context.Context, v resource.Subscription, e resource.Event) (TestResult, error) {
	end, err := s.tests.begin(v.UID, time.Now())
	if err != nil {
		return TestResult{}, err
	}
	defer end()
	a, err := s.cfg.Test(ctx, v, e)
	out := TestResult{Event: e.ID, Took: a.Latency.Round(time.Millisecond)}
	if err != nil {
		out.Error = err.Error()
	}
	return out, s.store.AddAttempt(ctx, v.UID, a)
}

// Test sends an event to the sink of a subscription once. It does not need the lease. It bypasses the queue, so the
// event neither waits for other events nor is retried.
func (d *Dispatcher) Test(
	ctx context.Context, sub resource.Subscription, e resource.Event,
) (a eventdb.Attempt, err error) {
	v, err := encode(d.cfg.Names, d.cfg.Source, e, Body{})
	if e.Type != testEventType {
		v, err = d.encode(e)
	}
	if err != nil {
		return d.attempt(e), err
	}
	client := outbound.Client(d.cfg.Reach)
	defer client.CloseIdleConnections()
	a, _, err = d.post(ctx, recipient{sub, deliveryHeaders(d.cfg.Names, sub), client}, e, v)
	return a, err
}

const (
	testWindow = time.Minute
	maxTests   = 10 // maximum number of tests per organization within testWindow
)

// A testLimiter limits how often subscriptions are tested, because each test is a request to an address that the caller
// has chosen.
type testLimiter struct {
	mu      sync.Mutex
	running map[resource.UID]bool        // subscriptions that are being tested now
	begun   map[resource.UID][]time.Time // start times of the tests in the last testWindow, by organization
}

// begin starts a test; the caller must call end when the test ends. It returns fault.ResourceExhausted if the
// subscription is being tested, or if its organization has started maxTests tests in the last testWindow.
func (t *testLimiter) begin(sub resource.UID, now time.Time) (end func(), _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for org, times := range t.begun {
		for len(times) > 0 && now.Sub(times[0]) >= testWindow {
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
	case len(t.begun[org]) >= maxTests:
		busy.RetryIn = testWindow - now.Sub(t.begun[org][0])
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
