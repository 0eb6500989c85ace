// Package event delivers the changes in the outbox to the sinks of subscriptions,
// as signed CloudEvents, and lists them in the audit log.
//
// A Service implements the methods of the API, and a Dispatcher delivers events. Every event is delivered at least
// once, always with the same ID. The events of one subject are delivered in order. An event that a sink has not
// accepted within a day is given up: it becomes a Delivery, which can be replayed.
package event

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// ServiceConfig configures a Service. The zero value works.
type ServiceConfig struct {
	Reach outbound.Config // limits the addresses of sinks
	Now   func() time.Time

	// Test sends an event to the sink of a subscription; see Dispatcher.Test.
	Test func(context.Context, resource.Subscription, resource.Event) (eventdb.Attempt, error)
}

// A Service manages subscriptions and reads the audit log.
type Service struct {
	store  *eventdb.Store
	authz  *authz.Checker
	pages  *page.Tokens
	outbox sharedReader
	tests  testLimiter
	cfg    ServiceConfig
}

// NewService returns a Service over db.
func NewService(db *store.DB, a *authz.Checker, t *page.Tokens, cfg ServiceConfig) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Service{store: eventdb.New(db), authz: a, pages: t, cfg: cfg}
	s.outbox.store = s.store
	return s
}

// CreateSubscription subscribes a sink to all future events of a group and of
// everything below it. The caller needs subscriptions.create on the group.
func (s *Service) CreateSubscription(
	ctx context.Context, parent resource.UID, v resource.Subscription,
) (resource.Subscription, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsCreate, parent); err != nil {
		return resource.Subscription{}, err
	}
	if err := v.Validate(); err != nil {
		return resource.Subscription{}, err
	}
	if err := s.checkSink(v.Sink); err != nil {
		return resource.Subscription{}, err
	}
	v.UID = parent.NewChild()
	v.CreateTime = s.cfg.Now().UTC().Truncate(time.Millisecond)
	return v, s.store.InsertSubscription(ctx, v)
}

// checkSink returns a fault if the server may not send requests to the address of a sink.
func (s *Service) checkSink(sink string) error {
	u, err := url.Parse(sink)
	if err == nil {
		err = s.cfg.Reach.Check(u)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outbound.ErrInsecure):
		return fault.Field("sink", "must be an https:// address")
	}
	return fault.Field("sink", "must be a public address, or one that the operator allows")
}

// redact removes the query, which may contain a secret, from the address of the sink, unless the caller may change the
// subscription.
func (s *Service) redact(ctx context.Context, v resource.Subscription) resource.Subscription {
	if s.authz.Require(ctx, resource.SubscriptionsUpdate, v.UID) != nil {
		return v.Redacted()
	}
	return v
}

// GetSubscription returns a subscription. The caller needs subscriptions.list on
// it, and subscriptions.update to see the query of its sink.
func (s *Service) GetSubscription(ctx context.Context, uid resource.UID) (resource.Subscription, error) {
	v, err := authz.Get(ctx, s.authz, resource.SubscriptionsList, uid, s.store.Subscription)
	return s.redact(ctx, v), err
}

// DeleteSubscription deletes a subscription. The caller needs subscriptions.delete on it.
func (s *Service) DeleteSubscription(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.SubscriptionsDelete, uid, s.store.DeleteSubscription)
}

// ListSubscriptions returns a page of the subscriptions on which the caller holds subscriptions.list. Like
// GetSubscription, it hides the query of a sink unless the caller holds subscriptions.update.
func (s *Service) ListSubscriptions(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.Subscription], error) {
	got, err := authz.List(
		ctx, s.authz, s.pages, eventdb.SubscriptionList, resource.SubscriptionsList, f, p, s.store.Subscriptions)
	for i := range got.Items {
		got.Items[i] = s.redact(ctx, got.Items[i])
	}
	return got, err
}

// An Attempt is a request to the sink of a subscription.
type Attempt = eventdb.Attempt

// ListAttempts returns the delivery log of a subscription, the latest attempt first. The caller needs
// subscriptions.list on it, and subscriptions.update to see the responses, because they may contain a secret.
func (s *Service) ListAttempts(ctx context.Context, uid resource.UID) ([]eventdb.Attempt, error) {
	if _, err := authz.Get(ctx, s.authz, resource.SubscriptionsList, uid, s.store.Subscription); err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(ctx, uid)
	if s.authz.Require(ctx, resource.SubscriptionsUpdate, uid) != nil {
		for i := range attempts {
			attempts[i].Response = ""
		}
	}
	return attempts, err
}

// GetDelivery returns an event that was given up. The caller needs subscriptions.list on it.
func (s *Service) GetDelivery(ctx context.Context, uid resource.UID) (resource.Delivery, error) {
	return authz.Get(ctx, s.authz, resource.SubscriptionsList, uid, s.store.Delivery)
}

// ListDeliveries returns a page of the events that were given up, for the subscriptions on which the caller holds
// subscriptions.list.
func (s *Service) ListDeliveries(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.Delivery], error) {
	return authz.List(ctx, s.authz, s.pages, eventdb.DeliveryList, resource.SubscriptionsList, f, p, s.store.Deliveries)
}

// Replay schedules a delivery, or all deliveries of a subscription, to be sent again, and returns their number. The
// caller needs subscriptions.update on it. It returns fault.NotFound if uid is neither a subscription nor a delivery.
func (s *Service) Replay(ctx context.Context, uid resource.UID) (int, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsUpdate, uid); err != nil {
		return 0, err
	}
	if _, err := s.store.Subscription(ctx, uid); err != nil {
		if !errors.Is(err, fault.NotFound) {
			return 0, err
		}
		if _, err := s.store.Delivery(ctx, uid); err != nil {
			return 0, err
		}
	}
	return s.store.ScheduleReplay(ctx, uid)
}
