// Package eventtest has fixtures for tests of subscriptions.
package eventtest

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// NewSubscription returns a subscription to the events of a group.
func NewSubscription(group resource.UID) resource.Subscription {
	return resource.Subscription{UID: group.NewChild(), Sink: "https://sink.test/x", CreateTime: iamtest.Epoch}
}

// AddSubscription inserts a subscription.
func AddSubscription(t testing.TB, s *eventdb.Store, group resource.UID) resource.Subscription {
	t.Helper()
	v := NewSubscription(group)
	testkit.Must(t, s.InsertSubscription(t.Context(), v))
	return v
}
