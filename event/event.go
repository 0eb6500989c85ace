// Package event tells others what has happened: it sends the changes that the
// outbox holds to the sinks of subscriptions, as signed CloudEvents, and shows
// them to those who ask who changed what.
//
// A Service answers calls; a Dispatcher does the sending. Every event is sent at
// least once, always under the same id, and the events of one subject in their
// order. What a sink has not taken within a day is kept in a list, from which it
// can be sent again.
package event

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// ServiceConfig is what a Service can be told. The zero value works.
type ServiceConfig struct {
	Reach outbound.Config // where sinks may be
	Now   func() time.Time
}

// A Service manages subscriptions, and tells what has happened.
type Service struct {
	store *store.Store
	authz *authz.Checker
	pages *page.Tokens
	cfg   ServiceConfig
}

// NewService returns a Service over s.
func NewService(s *store.Store, a *authz.Checker, t *page.Tokens, cfg ServiceConfig) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: s, authz: a, pages: t, cfg: cfg}
}

// The lists there are, with the orders they can have.
var (
	subscriptionList = page.List{Kind: "subscriptions", Fields: []string{"uid", "create_time"}, Default: page.Order{Field: "uid"}}
	deliveryList     = page.List{Kind: "deliveries", Fields: []string{"uid", "create_time"}, Default: page.Order{Field: "create_time", Desc: true}}
)

// CreateSubscription has the events of a group, and of everything below it, sent
// to a sink, from now on. The caller needs subscriptions.create there.
func (s *Service) CreateSubscription(ctx context.Context, parent resource.UID, v resource.Subscription) (resource.Subscription, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsCreate, parent); err != nil {
		return resource.Subscription{}, err
	}
	if err := v.Validate(); err != nil {
		return resource.Subscription{}, err
	}
	if err := s.reaches(v.Sink); err != nil {
		return resource.Subscription{}, err
	}
	v.UID = parent.NewChild()
	v.CreateTime = s.cfg.Now().UTC().Truncate(time.Millisecond)
	if err := s.store.InsertSubscription(ctx, v); err != nil {
		return resource.Subscription{}, err
	}
	return v, nil
}

// reaches tells whether anything could ever be sent to a sink.
func (s *Service) reaches(sink string) error {
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

// shown returns a subscription as the caller may see it: what may be a secret in
// the address of its sink is for those who could change it.
func (s *Service) shown(ctx context.Context, v resource.Subscription) resource.Subscription {
	if s.authz.Require(ctx, resource.SubscriptionsUpdate, v.UID) != nil {
		return v.Redacted()
	}
	return v
}

// GetSubscription returns a subscription. The caller needs subscriptions.list on
// it, and subscriptions.update to see the query of its sink.
func (s *Service) GetSubscription(ctx context.Context, uid resource.UID) (resource.Subscription, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsList, uid); err != nil {
		return resource.Subscription{}, err
	}
	v, err := s.store.Subscription(ctx, uid)
	return s.shown(ctx, v), err
}

// DeleteSubscription ends a subscription. The caller needs subscriptions.delete
// on it.
func (s *Service) DeleteSubscription(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.SubscriptionsDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteSubscription(ctx, uid)
}

// ListSubscriptions returns a page of the subscriptions the caller holds
// subscriptions.list on. Their sinks are as GetSubscription returns them.
func (s *Service) ListSubscriptions(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Subscription], error) {
	under, err := s.authz.Reach(ctx, resource.SubscriptionsList)
	if err != nil {
		return page.Page[resource.Subscription]{}, err
	}
	got, err := page.Read(ctx, s.pages, subscriptionList, store.Reach{Under: under}, f, p, s.store.Subscriptions)
	for i := range got.Items {
		got.Items[i] = s.shown(ctx, got.Items[i])
	}
	return got, err
}

// GetDelivery returns an event that was given up. The caller needs
// subscriptions.list on it.
func (s *Service) GetDelivery(ctx context.Context, uid resource.UID) (resource.Delivery, error) {
	if err := s.authz.Require(ctx, resource.SubscriptionsList, uid); err != nil {
		return resource.Delivery{}, err
	}
	return s.store.Delivery(ctx, uid)
}

// ListDeliveries returns a page of the events that were given up, of the
// subscriptions the caller holds subscriptions.list on.
func (s *Service) ListDeliveries(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Delivery], error) {
	under, err := s.authz.Reach(ctx, resource.SubscriptionsList)
	if err != nil {
		return page.Page[resource.Delivery]{}, err
	}
	return page.Read(ctx, s.pages, deliveryList, store.Reach{Under: under}, f, p, s.store.Deliveries)
}

// Replay has an event that was given up sent again, or all those of a
// subscription, and returns how many. The caller needs subscriptions.update on
// it.
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
	return s.store.Replay(ctx, uid)
}
