package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/event"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

type subscriptions struct {
	eventspb.UnsafeSubscriptionsServiceServer
	events *event.Service
}

// SubscriptionOf returns the message of a subscription.
func SubscriptionOf(v resource.Subscription) *eventspb.Subscription {
	return &eventspb.Subscription{Uid: string(v.UID), Sink: v.Sink, CreateTime: wire.Time(v.CreateTime)}
}

// ReadSubscription copies what clients may set from p to v.
func ReadSubscription(p *eventspb.Subscription, v *resource.Subscription) error {
	v.Sink = p.GetSink()
	return nil
}

func (s subscriptions) GetSubscription(ctx context.Context, r *eventspb.GetSubscriptionRequest) (*eventspb.Subscription, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.GetSubscription, SubscriptionOf)
}

func (s subscriptions) CreateSubscription(ctx context.Context, r *eventspb.CreateSubscriptionRequest) (*eventspb.Subscription, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetSubscription(), ReadSubscription, s.events.CreateSubscription,
		SubscriptionOf)
}

func (s subscriptions) ListSubscriptions(ctx context.Context, r *eventspb.ListSubscriptionsRequest) (*eventspb.ListSubscriptionsResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{Place: wire.Place(r.GetUidp())}, s.events.ListSubscriptions,
		SubscriptionOf)
	return &eventspb.ListSubscriptionsResponse{
		Subscriptions: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s subscriptions) DeleteSubscription(ctx context.Context, r *eventspb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.events.DeleteSubscription)
}

type deliveries struct {
	deliveriespb.UnsafeDeliveriesServiceServer
	events *event.Service
	names  event.Names
}

// deliveryOf returns the message of an event that could not be delivered.
func (s deliveries) deliveryOf(d resource.Delivery) *deliveriespb.Delivery {
	e := d.Event
	return &deliveriespb.Delivery{
		Uid: string(d.UID), EventId: e.ID, Type: s.names.Type(e.Type), Subject: string(e.Subject),
		EventTime: wire.Time(e.Time),
		Attempts:  int32(d.Attempts), Error: d.Error, Replaying: d.Replaying, CreateTime: wire.Time(d.CreateTime),
		UpdateTime: wire.Time(d.UpdateTime),
	}
}

func (s deliveries) GetDelivery(ctx context.Context, r *deliveriespb.GetDeliveryRequest) (*deliveriespb.Delivery, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.GetDelivery, s.deliveryOf)
}

func (s deliveries) ReplayDeliveries(ctx context.Context, r *deliveriespb.ReplayDeliveriesRequest) (*deliveriespb.ReplayDeliveriesResponse, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.Replay, func(n int) *deliveriespb.ReplayDeliveriesResponse {
		return &deliveriespb.ReplayDeliveriesResponse{Count: int32(n)}
	})
}

func (s deliveries) ListDeliveries(ctx context.Context, r *deliveriespb.ListDeliveriesRequest) (*deliveriespb.ListDeliveriesResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{Place: wire.Place(r.GetUidp())}, s.events.ListDeliveries, s.deliveryOf)
	return &deliveriespb.ListDeliveriesResponse{
		Deliveries: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
