package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"google.golang.org/protobuf/types/known/emptypb"

	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
)

// SubscriptionOf converts a subscription to a message.
func SubscriptionOf(v resource.Subscription) *eventspb.Subscription {
	p := &eventspb.Subscription{Uid: string(v.UID), Sink: v.Sink, CreateTime: wire.Time(v.CreateTime)}
	if v.Failing.Failing() {
		p.Failing = &eventspb.Failing{SinceTime: wire.Time(v.Failing.Since), Error: v.Failing.Error}
	}
	return p
}

// ReadSubscription copies the fields that clients may set from p to v.
func ReadSubscription(p *eventspb.Subscription, v *resource.Subscription) error {
	v.Sink = p.GetSink()
	return nil
}

func (s *server) GetSubscription(
	ctx context.Context, r *eventspb.GetSubscriptionRequest,
) (*eventspb.Subscription, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.GetSubscription, SubscriptionOf)
}

func (s *server) CreateSubscription(
	ctx context.Context, r *eventspb.CreateSubscriptionRequest,
) (*eventspb.Subscription, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetSubscription(), ReadSubscription, s.events.CreateSubscription,
		SubscriptionOf)
}

func (s *server) ListSubscriptions(
	ctx context.Context, r *eventspb.ListSubscriptionsRequest,
) (*eventspb.ListSubscriptionsResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, s.events.ListSubscriptions,
		SubscriptionOf)
	return &eventspb.ListSubscriptionsResponse{
		Subscriptions: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) DeleteSubscription(
	ctx context.Context, r *eventspb.DeleteSubscriptionRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.events.DeleteSubscription)
}

// deliveryOf converts an event that could not be delivered to a message.
func (s *server) deliveryOf(d resource.Delivery) *deliveriespb.Delivery {
	e := d.Event
	return &deliveriespb.Delivery{
		Uid: string(d.UID), EventId: e.ID, Type: s.cfg.Events.Type(e.Type), Subject: string(e.Subject),
		EventTime: wire.Time(e.Time), Attempts: int32(d.Attempts), Error: d.Error, Replaying: d.Replaying,
		CreateTime: wire.Time(d.CreateTime), UpdateTime: wire.Time(d.UpdateTime),
	}
}

func (s *server) GetDelivery(ctx context.Context, r *deliveriespb.GetDeliveryRequest) (*deliveriespb.Delivery, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.GetDelivery, s.deliveryOf)
}

func (s *server) ReplayDeliveries(
	ctx context.Context, r *deliveriespb.ReplayDeliveriesRequest,
) (*deliveriespb.ReplayDeliveriesResponse, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.Replay, func(n int) *deliveriespb.ReplayDeliveriesResponse {
		return &deliveriespb.ReplayDeliveriesResponse{Count: int32(n)}
	})
}

func (s *server) TestSubscription(
	ctx context.Context, r *deliveriespb.TestSubscriptionRequest,
) (*deliveriespb.TestSubscriptionResponse, error) {
	test := s.events.TestSubscription
	if id := r.GetEventId(); id != "" {
		test = func(ctx context.Context, uid resource.UID) (event.TestResult, error) {
			return s.events.Resend(ctx, uid, id)
		}
	}
	return wire.Get(ctx, "uid", r.GetUid(), test,
		func(t event.TestResult) *deliveriespb.TestSubscriptionResponse {
			return &deliveriespb.TestSubscriptionResponse{
				Taken: t.Error == "", Error: t.Error, EventId: t.Event, Took: durationpb.New(t.Took),
			}
		})
}

func (s *server) ListAttempts(
	ctx context.Context, r *deliveriespb.ListAttemptsRequest,
) (*deliveriespb.ListAttemptsResponse, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.events.ListAttempts,
		func(all []event.Attempt) *deliveriespb.ListAttemptsResponse {
			return &deliveriespb.ListAttemptsResponse{Attempts: wire.Convert(all, s.attemptOf)}
		})
}

// attemptOf converts an attempt to deliver an event to a message.
func (s *server) attemptOf(a event.Attempt) *deliveriespb.Attempt {
	return &deliveriespb.Attempt{
		EventId: a.EventID, Type: s.cfg.Events.Type(a.Type), Subject: string(a.Subject), Time: wire.Time(a.Time),
		Latency: durationpb.New(a.Latency), Status: int32(a.Status), Taken: a.Error == "", Error: a.Error,
		Response: a.Response, NextTime: wire.Time(a.Next),
	}
}

func (s *server) ListDeliveries(
	ctx context.Context, r *deliveriespb.ListDeliveriesRequest,
) (*deliveriespb.ListDeliveriesResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, s.events.ListDeliveries, s.deliveryOf)
	return &deliveriespb.ListDeliveriesResponse{
		Deliveries: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
