package v1

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/events/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
)

type subscriptions struct {
	pb.UnsafeSubscriptionsServer
	events *event.Service
}

var (
	subscriptionOf   = writer[*pb.Subscription](v2.SubscriptionOf)
	readSubscription = reader[*pb.Subscription](v2.ReadSubscription)
)

func (s subscriptions) Create(ctx context.Context, r *pb.CreateSubscriptionRequest) (*pb.Subscription, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetSubscription(), readSubscription,
		s.events.CreateSubscription, subscriptionOf)
}

func (s subscriptions) List(ctx context.Context, r *pb.SubscriptionFilter) (*pb.SubscriptionList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId())}
	items, err := everything(ctx, f, s.events.ListSubscriptions, subscriptionOf)
	return &pb.SubscriptionList{Items: items}, err
}

func (s subscriptions) Delete(ctx context.Context, r *pb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.events.DeleteSubscription)
}

type eventIdentities struct {
	pb.UnsafeIdentitiesServer
	iam *iam.Service
}

func (s eventIdentities) Create(ctx context.Context, _ *pb.Identity) (*pb.Identity, error) {
	return nil, s.iam.CreatePerson(ctx)
}

// UpdateMetadata changes only the fields that the request sets. In version 1, but not
// in later versions, the answers of people are separate from their other metadata.
func (s eventIdentities) UpdateMetadata(ctx context.Context, r *pb.IdentityMetadata) (*pb.IdentityMetadata, error) {
	i, err := s.iam.UpdateMetadata(ctx, func(i *resource.Identity) error {
		p := translate(r.GetOnboardingQuestions(), accessapi.MetadataOf(*i))
		p.UpdatesOptIn = p.GetUpdatesOptIn() || r.GetUpdatesOptIn()
		return accessapi.ReadMetadata(p, i)
	})
	p := accessapi.MetadataOf(i)
	out := translate(p, &pb.IdentityMetadata{})
	out.OnboardingQuestions = translate(p, &pb.IdentityMetadata_OnboardingQuestions{})
	return out, err
}
