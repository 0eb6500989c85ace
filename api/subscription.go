package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/event"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventsv1pb "github.com/holdfast-dev/holdfast/gen/events/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

type subscriptions struct {
	eventspb.UnsafeSubscriptionsServiceServer
	events *event.Service
}

// subscriptionOf writes a subscription.
func subscriptionOf(v resource.Subscription) *eventspb.Subscription {
	return &eventspb.Subscription{Uid: string(v.UID), Sink: v.Sink, CreateTime: timeOf(v.CreateTime)}
}

// GetSubscription is of eventspb.SubscriptionsServiceServer.
func (s subscriptions) GetSubscription(ctx context.Context, r *eventspb.GetSubscriptionRequest) (*eventspb.Subscription, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	v, err := s.events.GetSubscription(ctx, uid)
	if err != nil {
		return nil, err
	}
	return subscriptionOf(v), nil
}

// CreateSubscription is of eventspb.SubscriptionsServiceServer.
func (s subscriptions) CreateSubscription(ctx context.Context, r *eventspb.CreateSubscriptionRequest) (*eventspb.Subscription, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	v, err := s.events.CreateSubscription(ctx, parent, resource.Subscription{Sink: r.GetSubscription().GetSink()})
	if err != nil {
		return nil, err
	}
	return subscriptionOf(v), nil
}

// ListSubscriptions is of eventspb.SubscriptionsServiceServer.
func (s subscriptions) ListSubscriptions(ctx context.Context, r *eventspb.ListSubscriptionsRequest) (*eventspb.ListSubscriptionsResponse, error) {
	p, err := s.events.ListSubscriptions(ctx, resource.Filter{Place: placeOf(r)}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &eventspb.ListSubscriptionsResponse{
		Subscriptions: convert(p.Items, subscriptionOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// DeleteSubscription is of eventspb.SubscriptionsServiceServer.
func (s subscriptions) DeleteSubscription(ctx context.Context, r *eventspb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.events.DeleteSubscription(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

type subscriptionsV1 struct {
	eventsv1pb.UnsafeSubscriptionsServer
	events *event.Service
}

func subscriptionV1(v resource.Subscription) *eventsv1pb.Subscription {
	return &eventsv1pb.Subscription{Id: string(v.UID), Sink: v.Sink}
}

// Create is of eventsv1pb.SubscriptionsServer.
func (s subscriptionsV1) Create(ctx context.Context, r *eventsv1pb.CreateSubscriptionRequest) (*eventsv1pb.Subscription, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	v, err := s.events.CreateSubscription(ctx, parent, resource.Subscription{Sink: r.GetSubscription().GetSink()})
	if err != nil {
		return nil, err
	}
	return subscriptionV1(v), nil
}

// List is of eventsv1pb.SubscriptionsServer.
func (s subscriptionsV1) List(ctx context.Context, r *eventsv1pb.SubscriptionFilter) (*eventsv1pb.SubscriptionList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId())}
	all, err := everything(func(p page.Params) (page.Page[resource.Subscription], error) {
		return s.events.ListSubscriptions(ctx, f, p)
	})
	if err != nil {
		return nil, err
	}
	return &eventsv1pb.SubscriptionList{Items: convert(all, subscriptionV1)}, nil
}

// Delete is of eventsv1pb.SubscriptionsServer.
func (s subscriptionsV1) Delete(ctx context.Context, r *eventsv1pb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.events.DeleteSubscription)
}

type deliveries struct {
	deliveriespb.UnsafeDeliveriesServiceServer
	events *event.Service
	names  event.Names
}

// deliveryOf writes an event that was given up.
func (s deliveries) deliveryOf(d resource.Delivery) *deliveriespb.Delivery {
	e := d.Event
	return &deliveriespb.Delivery{
		Uid: string(d.UID), EventId: e.ID, Type: s.names.Type(e.Type), Subject: string(e.Subject), EventTime: timeOf(e.Time),
		Attempts: int32(d.Attempts), Error: d.Error, Replaying: d.Replaying, CreateTime: timeOf(d.CreateTime), UpdateTime: timeOf(d.UpdateTime),
	}
}

// GetDelivery is of deliveriespb.DeliveriesServiceServer.
func (s deliveries) GetDelivery(ctx context.Context, r *deliveriespb.GetDeliveryRequest) (*deliveriespb.Delivery, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	d, err := s.events.GetDelivery(ctx, uid)
	if err != nil {
		return nil, err
	}
	return s.deliveryOf(d), nil
}

// ReplayDeliveries is of deliveriespb.DeliveriesServiceServer.
func (s deliveries) ReplayDeliveries(ctx context.Context, r *deliveriespb.ReplayDeliveriesRequest) (*deliveriespb.ReplayDeliveriesResponse, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	n, err := s.events.Replay(ctx, uid)
	if err != nil {
		return nil, err
	}
	return &deliveriespb.ReplayDeliveriesResponse{Count: int32(n)}, nil
}

// ListDeliveries is of deliveriespb.DeliveriesServiceServer.
func (s deliveries) ListDeliveries(ctx context.Context, r *deliveriespb.ListDeliveriesRequest) (*deliveriespb.ListDeliveriesResponse, error) {
	p, err := s.events.ListDeliveries(ctx, resource.Filter{Place: placeOf(r)}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &deliveriespb.ListDeliveriesResponse{
		Deliveries: convert(p.Items, s.deliveryOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
