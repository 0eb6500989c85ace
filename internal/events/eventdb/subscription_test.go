package eventdb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb/eventtest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// given returns deliveries by a subscription, for the events with these numbers.
func given(sub resource.UID, numbers ...int64) (all []resource.Delivery) {
	for _, n := range numbers {
		all = append(all, resource.Delivery{
			UID: sub.NewChild(),
			Event: resource.Event{Seq: n, ID: fmt.Sprint("e", n), Type: resource.GroupCreated, Time: iamtest.Epoch,
				Before: []byte{},
				After:  []byte(`{"a":1}`)},
			Error: "no", Attempts: 3, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch.Add(time.Second),
		})
	}
	return all
}

var eventPromises = map[string]func(t *testing.T, s *eventtest.Store){
	"a subscription keeps what it was given": func(t *testing.T, s *eventtest.Store) {
		v := eventtest.AddSubscription(t, s.EventStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID)
		testkit.WantSame(t, s.Subscription, v.UID, v)
		testkit.Must(t, s.DeleteSubscription(t.Context(), v.UID))
		missing := fault.Resource{Type: "subscription", Name: string(v.UID)}
		_, err := s.Subscription(t.Context(), v.UID)
		testkit.WantFault(t, err, fault.NotFound, missing)
		_, err = s.Sink(t.Context(), v.UID)
		testkit.WantFault(t, err, fault.NotFound, missing)
		testkit.WantFault(t, s.DeleteSubscription(t.Context(), v.UID), fault.NotFound, missing)
		testkit.WantFault(t, s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 7)), fault.NotFound, missing)
		dbtest.WantExact(t, s.DB)
	},
	"a subscription needs its group, and holds it": func(t *testing.T, s *eventtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		parent := org.UID.NewChild()
		testkit.WantFault(t, s.InsertSubscription(t.Context(), eventtest.NewSubscription(parent)), fault.NotFound,
			fault.Resource{Type: "group", Name: string(parent)})
		eventtest.AddSubscription(t, s.EventStore, org.UID)
		testkit.WantFault(t, s.DeleteGroup(t.Context(), org.UID, iamtest.Alice), fault.FailedPrecondition, fault.Resource{})
	},
	"a subscription begins with its own event": func(t *testing.T, s *eventtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		v := eventtest.AddSubscription(t, s.EventStore, org.UID)
		iamtest.AddGroup(t, s.IAMStore, org.UID, "later")
		sink, err := s.Sink(t.Context(), v.UID)
		testkit.Must(t, err)
		got, err := outbox.Read(t.Context(), s.DB, sink.Cursor, 10)
		testkit.Must(t, err)
		if len(got) != 2 || got[0].Subject != v.UID || got[0].Type != resource.SubscriptionCreated {
			t.Errorf("events = %+v", got)
		}
	},
	"sinks come in pages": func(t *testing.T, s *eventtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		var want, got []resource.UID
		for range 5 {
			want = append(want, eventtest.AddSubscription(t, s.EventStore, org.UID).UID)
		}
		slices.Sort(want)
		for after := resource.UID(""); ; after = got[len(got)-1] {
			sinks, err := s.Sinks(t.Context(), after, 2)
			testkit.Must(t, err)
			if len(sinks) == 0 {
				break
			}
			for _, v := range sinks {
				got = append(got, v.UID)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"a subscription never goes back": func(t *testing.T, s *eventtest.Store) {
		v := eventtest.AddSubscription(t, s.EventStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID)
		for _, step := range []struct{ to, want int64 }{{50, 50}, {20, 50}, {60, 60}} {
			testkit.Must(t, s.SaveCursors(t.Context(), s.History(), map[resource.UID]int64{v.UID: step.to, v.UID.NewChild(): 7}))
			if got, err := s.Sink(t.Context(), v.UID); err != nil || got.Cursor != step.want {
				t.Errorf("after %d it is at %d, want %d (%v)", step.to, got.Cursor, step.want, err)
			}
		}
	},
	"what is given up is kept once": func(t *testing.T, s *eventtest.Store) {
		v := eventtest.AddSubscription(t, s.EventStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID)
		all := given(v.UID, 7, 8)
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 8, all))
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 8, 9)))
		testkit.WantSame(t, s.Delivery, all[0].UID, all[0])
		if got, err := s.Sink(t.Context(), v.UID); err != nil || got.Cursor != 9 {
			t.Errorf("it is at %d (%v)", got.Cursor, err)
		}
		p, err := s.Deliveries(t.Context(), store.Reach{Under: []resource.UID{v.UID.Root()}}, resource.Filter{},
			iamtest.ByUID)
		testkit.Must(t, err)
		if p.Total != 3 || len(p.Items) != 3 {
			t.Errorf("%d of %d deliveries, want 3", len(p.Items), p.Total)
		}
		dbtest.WantExact(t, s.DB)
	},
	"what is given up has a bound": func(t *testing.T, s *eventtest.Store) {
		v := eventtest.AddSubscription(t, s.EventStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID)
		var numbers []int64
		for n := range int64(eventdb.MaxDeliveries + 5) {
			numbers = append(numbers, n+1)
		}
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 1, given(v.UID, numbers...)))
		f := resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: v.UID}}
		p, err := s.Deliveries(t.Context(), store.Reach{Under: []resource.UID{v.UID.Root()}}, f,
			page.Request{Size: 1, Order: page.Order{Field: "uid"}})
		testkit.Must(t, err)
		if p.Total != eventdb.MaxDeliveries {
			t.Errorf("%d are kept", p.Total)
		}
		_, err = s.ScheduleReplay(t.Context(), v.UID)
		testkit.Must(t, err)
		oldest, err := s.ScheduledReplays(t.Context(), v.UID, 1)
		testkit.Must(t, err)
		if len(oldest) != 1 || oldest[0].Event.Seq != 6 {
			t.Errorf("the oldest is %+v", oldest)
		}
		dbtest.WantExact(t, s.DB)
	},
	"a replay ends with or without the delivery": func(t *testing.T, s *eventtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		v, other := eventtest.AddSubscription(t, s.EventStore, org.UID), eventtest.AddSubscription(t, s.EventStore, org.UID)
		all := given(v.UID, 7, 8)
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 8, all))
		testkit.Must(t, s.GiveUp(t.Context(), other.UID, 8, given(other.UID, 8)))
		wantReplays(t, s, v.UID)
		if n, err := s.ScheduleReplay(t.Context(), all[1].UID); err != nil || n != 1 {
			t.Errorf("replay of one: %d, %v", n, err)
		}
		wantReplays(t, s, v.UID, 8)
		if n, err := s.ScheduleReplay(t.Context(), v.UID); err != nil || n != 2 {
			t.Errorf("replay of all: %d, %v", n, err)
		}
		wantReplays(t, s, v.UID, 7, 8)
		if uids, err := s.SubscriptionsToReplay(t.Context()); err != nil || !slices.Equal(uids, []resource.UID{v.UID}) {
			t.Errorf("replaying: %v, %v", uids, err)
		}
		all[0].Attempts, all[0].Error, all[0].UpdateTime = 9, "still no", iamtest.Epoch.Add(time.Hour)
		testkit.Must(t, s.FinishReplay(t.Context(), all[0], false))
		testkit.Must(t, s.FinishReplay(t.Context(), all[1], true))
		testkit.Must(t, s.FinishReplay(t.Context(), all[1], true)) // the delivery is already deleted
		wantReplays(t, s, v.UID)
		testkit.WantSame(t, s.Delivery, all[0].UID, all[0])
		_, err := s.Delivery(t.Context(), all[1].UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "delivery", Name: string(all[1].UID)})
		dbtest.WantExact(t, s.DB)
	},
	"the wrong path to the right segment replays nothing": func(t *testing.T, s *eventtest.Store) {
		v := eventtest.AddSubscription(t, s.EventStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID)
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 8, given(v.UID, 7)))
		wrong := iamtest.AddGroup(t, s.IAMStore, "", "other").UID + v.UID[40:]
		if n, err := s.ScheduleReplay(t.Context(), wrong); err != nil || n != 0 {
			t.Errorf("replay: %d, %v", n, err)
		}
		wantReplays(t, s, v.UID)
	},
	"old events are forgotten, and so are old deliveries": func(t *testing.T, s *eventtest.Store) {
		now := iamtest.Epoch
		s.Now = func() time.Time { return now }
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		v := eventtest.AddSubscription(t, s.EventStore, org.UID)
		testkit.Must(t, s.GiveUp(t.Context(), v.UID, 8, given(v.UID, 7, 8)))
		now = iamtest.Epoch.Add(time.Hour)
		iamtest.AddGroup(t, s.IAMStore, org.UID, "new")
		if n, err := outbox.Prune(t.Context(), s.DB, iamtest.Epoch.Add(time.Minute), 1); err != nil || n != 1 {
			t.Errorf("one was to go: %d, %v", n, err)
		}
		if n, err := outbox.Prune(t.Context(), s.DB, iamtest.Epoch.Add(time.Minute), 100); err != nil || n != 1 {
			t.Errorf("the other old one was to go: %d, %v", n, err)
		}
		if got := dbtest.Events(t, s.DB); len(got) != 1 {
			t.Errorf("%d events are left", len(got))
		}
		if n, err := s.PruneDeliveries(t.Context(), iamtest.Epoch, 100); err != nil || n != 0 {
			t.Errorf("none was to go: %d, %v", n, err)
		}
		if n, err := s.PruneDeliveries(t.Context(), iamtest.Epoch.Add(time.Millisecond), 100); err != nil || n != 2 {
			t.Errorf("both were to go: %d, %v", n, err)
		}
		dbtest.WantExact(t, s.DB)
	},
	"a lease has one holder": func(t *testing.T, s *eventtest.Store) {
		for i, step := range []struct {
			holder string
			life   time.Duration
			want   bool
		}{
			{"a", time.Hour, true}, {"b", time.Hour, false}, {"a", time.Hour, true}, {"a", -time.Second, true}, {"b",
				time.Hour, true}, {"a", time.Hour, false},
		} {
			if has, err := lease.Acquire(t.Context(), s.DB, "work", step.holder, step.life); err != nil || has != step.want {
				t.Errorf("step %d: %s has it: %v, %v", i, step.holder, has, err)
			}
		}
		testkit.Must(t, lease.Release(t.Context(), s.DB, "work", "a")) // has no effect, because b has the lease
		if has, err := lease.Acquire(t.Context(), s.DB, "work", "a", time.Hour); err != nil || has {
			t.Errorf("a took what b has (%v)", err)
		}
		testkit.Must(t, lease.Release(t.Context(), s.DB, "work", "b"))
		if has, err := lease.Acquire(t.Context(), s.DB, "work", "a", time.Hour); err != nil || !has {
			t.Errorf("a cannot take what nobody has (%v)", err)
		}
	},
}

func TestEventPromises(t *testing.T) {
	for name, f := range eventPromises {
		t.Run(name, func(t *testing.T) { eventtest.Each(t, f) })
	}
}

func wantReplays(t *testing.T, s *eventtest.Store, sub resource.UID, want ...int64) {
	t.Helper()
	all, err := s.ScheduledReplays(t.Context(), sub, 100)
	testkit.Must(t, err)
	var got []int64
	for _, d := range all {
		if !d.Replaying {
			t.Errorf("%s is not being replayed", d.UID)
		}
		got = append(got, d.Event.Seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("replays = %v, want %v", got, want)
	}
}

// TestSubscribeAndDelete subscribes to a group and deletes the group concurrently, and checks that
// the result is consistent.
func TestSubscribeAndDelete(t *testing.T) {
	eventtest.Each(t, func(t *testing.T, s *eventtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for range 20 {
			g := iamtest.AddGroup(t, s.IAMStore, org.UID, string(org.UID.NewChild()[41:]))
			a, b := dbtest.AtOnce(
				func() error { return s.InsertSubscription(t.Context(), eventtest.NewSubscription(g.UID)) },
				func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			)
			if !(a == nil && errors.Is(b, fault.FailedPrecondition) || b == nil && errors.Is(a, fault.NotFound)) {
				t.Fatalf("subscribe: %v, delete the group: %v", a, b)
			}
			v := eventtest.AddSubscription(t, s.EventStore, org.UID)
			a, b = dbtest.AtOnce(
				func() error { return s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 7)) },
				func() error { return s.DeleteSubscription(t.Context(), v.UID) },
			)
			if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
				t.Fatalf("give up: %v, delete the subscription: %v", a, b)
			}
		}
		dbtest.WantExact(t, s.DB)
	})
}
