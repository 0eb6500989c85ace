package v1

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	v2 "github.com/holdfast-dev/holdfast/api/v2"
	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/event"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type subscriptions struct {
	eventspb.UnsafeSubscriptionsServer
	events *event.Service
}

var (
	subscriptionOf   = writer[*eventspb.Subscription](v2.SubscriptionOf)
	readSubscription = reader[*eventspb.Subscription](v2.ReadSubscription)
)

func (s subscriptions) Create(ctx context.Context, r *eventspb.CreateSubscriptionRequest) (*eventspb.Subscription, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetSubscription(), readSubscription,
		s.events.CreateSubscription, subscriptionOf)
}

func (s subscriptions) List(ctx context.Context, r *eventspb.SubscriptionFilter) (*eventspb.SubscriptionList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId())}
	all, err := everything(ctx, f, s.events.ListSubscriptions, subscriptionOf)
	return &eventspb.SubscriptionList{Items: all}, err
}

func (s subscriptions) Delete(ctx context.Context, r *eventspb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.events.DeleteSubscription)
}

type eventIdentities struct {
	eventspb.UnsafeIdentitiesServer
	iam *iam.Service
}

func (s eventIdentities) Create(ctx context.Context, _ *eventspb.Identity) (*eventspb.Identity, error) {
	return nil, s.iam.CreatePerson(ctx)
}

// UpdateMetadata changes only what the request sets. Version 1 has the answers
// of people apart from the rest of their metadata; later versions do not.
func (s eventIdentities) UpdateMetadata(ctx context.Context, r *eventspb.IdentityMetadata) (*eventspb.IdentityMetadata, error) {
	i, err := s.iam.UpdateMetadata(ctx, func(i *resource.Identity) error {
		p := translate(r.GetOnboardingQuestions(), v2.MetadataOf(*i))
		p.UpdatesOptIn = p.GetUpdatesOptIn() || r.GetUpdatesOptIn()
		return v2.ReadMetadata(p, i)
	})
	p := v2.MetadataOf(i)
	out := translate(p, &eventspb.IdentityMetadata{})
	out.OnboardingQuestions = translate(p, &eventspb.IdentityMetadata_OnboardingQuestions{})
	return out, err
}
