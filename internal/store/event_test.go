package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func newSubscription(group resource.UID) resource.Subscription {
	return resource.Subscription{UID: group.NewChild(), Sink: "https://sink.test/x", CreateTime: epoch}
}

func addSubscription(t *testing.T, s *storetest.Store, group resource.UID) resource.Subscription {
	t.Helper()
	v := newSubscription(group)
	must(t, s.InsertSubscription(t.Context(), v))
	return v
}

// given returns deliveries by a subscription, for the events with these numbers.
func given(sub resource.UID, numbers ...int64) (all []resource.Delivery) {
	for _, n := range numbers {
		all = append(all, resource.Delivery{
			UID: sub.NewChild(),
			Event: resource.Event{Seq: n, ID: fmt.Sprint("e", n), Type: resource.GroupCreated, Time: epoch, Before: []byte{},
				After: []byte(`{"a":1}`)},
			Error: "no", Attempts: 3, CreateTime: epoch, UpdateTime: epoch.Add(time.Second),
		})
	}
	return all
}

var eventPromises = map[string]func(t *testing.T, s *storetest.Store){
	"a subscription keeps what it was given": func(t *testing.T, s *storetest.Store) {
		v := addSubscription(t, s, addGroup(t, s, "", "org").UID)
		wantSame(t, s.Subscription, v.UID, v)
		must(t, s.DeleteSubscription(t.Context(), v.UID))
		missing := fault.Resource{Type: "subscription", Name: string(v.UID)}
		_, err := s.Subscription(t.Context(), v.UID)
		wantFault(t, err, fault.NotFound, missing)
		_, err = s.Sink(t.Context(), v.UID)
		wantFault(t, err, fault.NotFound, missing)
		wantFault(t, s.DeleteSubscription(t.Context(), v.UID), fault.NotFound, missing)
		wantFault(t, s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 7)), fault.NotFound, missing)
		wantExact(t, s)
	},
	"a subscription needs its group, and holds it": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		parent := org.UID.NewChild()
		wantFault(t, s.InsertSubscription(t.Context(), newSubscription(parent)), fault.NotFound,
			fault.Resource{Type: "group", Name: string(parent)})
		addSubscription(t, s, org.UID)
		wantFault(t, s.DeleteGroup(t.Context(), org.UID, alice), fault.FailedPrecondition, fault.Resource{})
	},
	"a subscription begins with its own event": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		v := addSubscription(t, s, org.UID)
		addGroup(t, s, org.UID, "later")
		sink, err := s.Sink(t.Context(), v.UID)
		must(t, err)
		got, err := s.Events(t.Context(), sink.Cursor, 10)
		must(t, err)
		if len(got) != 2 || got[0].Subject != v.UID || got[0].Type != resource.SubscriptionCreated {
			t.Errorf("events = %+v", got)
		}
	},
	"sinks come in pages": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		var want, got []resource.UID
		for range 5 {
			want = append(want, addSubscription(t, s, org.UID).UID)
		}
		slices.Sort(want)
		for after := resource.UID(""); ; after = got[len(got)-1] {
			sinks, err := s.Sinks(t.Context(), after, 2)
			must(t, err)
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
	"a subscription never goes back": func(t *testing.T, s *storetest.Store) {
		v := addSubscription(t, s, addGroup(t, s, "", "org").UID)
		for _, step := range []struct{ to, want int64 }{{50, 50}, {20, 50}, {60, 60}} {
			must(t, s.SaveCursors(t.Context(), s.History(), map[resource.UID]int64{v.UID: step.to, v.UID.NewChild(): 7}))
			if got, err := s.Sink(t.Context(), v.UID); err != nil || got.Cursor != step.want {
				t.Errorf("after %d it is at %d, want %d (%v)", step.to, got.Cursor, step.want, err)
			}
		}
	},
	"what is given up is kept once": func(t *testing.T, s *storetest.Store) {
		v := addSubscription(t, s, addGroup(t, s, "", "org").UID)
		all := given(v.UID, 7, 8)
		must(t, s.GiveUp(t.Context(), v.UID, 8, all))
		must(t, s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 8, 9)))
		wantSame(t, s.Delivery, all[0].UID, all[0])
		if got, err := s.Sink(t.Context(), v.UID); err != nil || got.Cursor != 9 {
			t.Errorf("it is at %d (%v)", got.Cursor, err)
		}
		p, err := s.Deliveries(t.Context(), store.Reach{Under: []resource.UID{v.UID.Root()}}, resource.Filter{}, byUID)
		must(t, err)
		if p.Total != 3 || len(p.Items) != 3 {
			t.Errorf("%d of %d deliveries, want 3", len(p.Items), p.Total)
		}
		wantExact(t, s)
	},
	"what is given up has a bound": func(t *testing.T, s *storetest.Store) {
		v := addSubscription(t, s, addGroup(t, s, "", "org").UID)
		var numbers []int64
		for n := range int64(eventdb.MaxDeliveries + 5) {
			numbers = append(numbers, n+1)
		}
		must(t, s.GiveUp(t.Context(), v.UID, 1, given(v.UID, numbers...)))
		f := resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: v.UID}}
		p, err := s.Deliveries(t.Context(), store.Reach{Under: []resource.UID{v.UID.Root()}}, f,
			page.Request{Size: 1, Order: page.Order{Field: "uid"}})
		must(t, err)
		if p.Total != eventdb.MaxDeliveries {
			t.Errorf("%d are kept", p.Total)
		}
		_, err = s.ScheduleReplay(t.Context(), v.UID)
		must(t, err)
		oldest, err := s.ScheduledReplays(t.Context(), v.UID, 1)
		must(t, err)
		if len(oldest) != 1 || oldest[0].Event.Seq != 6 {
			t.Errorf("the oldest is %+v", oldest)
		}
		wantExact(t, s)
	},
	"a replay ends with or without the delivery": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		v, other := addSubscription(t, s, org.UID), addSubscription(t, s, org.UID)
		all := given(v.UID, 7, 8)
		must(t, s.GiveUp(t.Context(), v.UID, 8, all))
		must(t, s.GiveUp(t.Context(), other.UID, 8, given(other.UID, 8)))
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
		all[0].Attempts, all[0].Error, all[0].UpdateTime = 9, "still no", epoch.Add(time.Hour)
		must(t, s.FinishReplay(t.Context(), all[0], false))
		must(t, s.FinishReplay(t.Context(), all[1], true))
		must(t, s.FinishReplay(t.Context(), all[1], true)) // the delivery is already deleted
		wantReplays(t, s, v.UID)
		wantSame(t, s.Delivery, all[0].UID, all[0])
		_, err := s.Delivery(t.Context(), all[1].UID)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "delivery", Name: string(all[1].UID)})
		wantExact(t, s)
	},
	"the wrong path to the right segment replays nothing": func(t *testing.T, s *storetest.Store) {
		v := addSubscription(t, s, addGroup(t, s, "", "org").UID)
		must(t, s.GiveUp(t.Context(), v.UID, 8, given(v.UID, 7)))
		wrong := addGroup(t, s, "", "other").UID + v.UID[40:]
		if n, err := s.ScheduleReplay(t.Context(), wrong); err != nil || n != 0 {
			t.Errorf("replay: %d, %v", n, err)
		}
		wantReplays(t, s, v.UID)
	},
	"old events are forgotten, and so are old deliveries": func(t *testing.T, s *storetest.Store) {
		now := epoch
		s.Now = func() time.Time { return now }
		org := addGroup(t, s, "", "org")
		v := addSubscription(t, s, org.UID)
		must(t, s.GiveUp(t.Context(), v.UID, 8, given(v.UID, 7, 8)))
		now = epoch.Add(time.Hour)
		addGroup(t, s, org.UID, "new")
		if n, err := s.PruneEvents(t.Context(), epoch.Add(time.Minute), 1); err != nil || n != 1 {
			t.Errorf("one was to go: %d, %v", n, err)
		}
		if n, err := s.PruneEvents(t.Context(), epoch.Add(time.Minute), 100); err != nil || n != 1 {
			t.Errorf("the other old one was to go: %d, %v", n, err)
		}
		if got := events(t, s); len(got) != 1 {
			t.Errorf("%d events are left", len(got))
		}
		if n, err := s.PruneDeliveries(t.Context(), epoch, 100); err != nil || n != 0 {
			t.Errorf("none was to go: %d, %v", n, err)
		}
		if n, err := s.PruneDeliveries(t.Context(), epoch.Add(time.Millisecond), 100); err != nil || n != 2 {
			t.Errorf("both were to go: %d, %v", n, err)
		}
		wantExact(t, s)
	},
	"events are found backwards, by group and by time": eventsBackwards,
	"a lease has one holder": func(t *testing.T, s *storetest.Store) {
		for i, step := range []struct {
			holder string
			life   time.Duration
			want   bool
		}{
			{"a", time.Hour, true}, {"b", time.Hour, false}, {"a", time.Hour, true}, {"a", -time.Second, true}, {"b",
				time.Hour, true}, {"a", time.Hour, false},
		} {
			if has, err := s.AcquireLease(t.Context(), "work", step.holder, step.life); err != nil || has != step.want {
				t.Errorf("step %d: %s has it: %v, %v", i, step.holder, has, err)
			}
		}
		must(t, s.ReleaseLease(t.Context(), "work", "a")) // has no effect, because b has the lease
		if has, err := s.AcquireLease(t.Context(), "work", "a", time.Hour); err != nil || has {
			t.Errorf("a took what b has (%v)", err)
		}
		must(t, s.ReleaseLease(t.Context(), "work", "b"))
		if has, err := s.AcquireLease(t.Context(), "work", "a", time.Hour); err != nil || !has {
			t.Errorf("a cannot take what nobody has (%v)", err)
		}
	},
	"a tail leaves nothing out, whoever writes": tailOfMany,
	"a tail skips what nobody wants to see":     tailThatSkips,
}

func TestEventPromises(t *testing.T) {
	for name, f := range eventPromises {
		t.Run(name, func(t *testing.T) { storetest.Each(t, f) })
	}
}

func wantReplays(t *testing.T, s *storetest.Store, sub resource.UID, want ...int64) {
	t.Helper()
	all, err := s.ScheduledReplays(t.Context(), sub, 100)
	must(t, err)
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

func eventsBackwards(t *testing.T, s *storetest.Store) {
	now := epoch
	s.Now = func() time.Time { return now }
	org, other := addGroup(t, s, "", "org"), addGroup(t, s, "", "other")
	var folders []resource.UID
	for n := range 10 {
		now = epoch.Add(time.Duration(n+1) * time.Minute)
		folders = append(folders, addGroup(t, s, org.UID, fmt.Sprint("f", n)).UID)
	}
	all := events(t, s)
	last := all[len(all)-1].Seq
	look := func(group resource.UID, before int64, n, reach int) (subjects []resource.UID, stopped int64) {
		t.Helper()
		got, stopped, err := s.EventsBefore(t.Context(), group, before, n, reach)
		must(t, err)
		for _, e := range got {
			subjects = append(subjects, e.Subject)
		}
		return subjects, stopped
	}
	got, stopped := look("", last+1, 2, 100)
	if !slices.Equal(got, []resource.UID{folders[9], folders[8]}) || stopped != last-1 {
		t.Errorf("the newest two: %v, stopped at %d", got, stopped)
	}
	if got, _ = look(other.UID, last+1, 100, 100); !slices.Equal(got, []resource.UID{other.UID}) {
		t.Errorf("of another group: %v", got)
	}
	if got, stopped = look(other.UID, last+1, 100, 3); len(got) != 0 || stopped != last-2 {
		t.Errorf("within reach: %v, stopped at %d", got, stopped)
	}
	if got, stopped = look("", all[0].Seq, 100, 100); len(got) != 0 || stopped != 0 {
		t.Errorf("before the first: %v, stopped at %d", got, stopped)
	}
	for at, want := range map[time.Duration]int64{-time.Hour: all[0].Seq, 0: all[0].Seq, time.Minute: all[2].Seq,
		90 * time.Second: all[3].Seq, time.Hour: last + 1} {
		if n, err := s.EventNumber(t.Context(), epoch.Add(at)); err != nil || n != want {
			t.Errorf("at %s: number %d, want %d (%v)", at, n, want, err)
		}
	}
}

// tailOfMany checks that a tail returns every event in order while many writers commit and fail.
func tailOfMany(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	must(t, err)
	const writers, each = 8, 25
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				g := newGroup(org.UID, fmt.Sprintf("%d.%d", w, n))
				if _, err := s.InsertGroup(t.Context(), g); err != nil {
					t.Error(err)
				}
				if err := s.WriteLater(t.Context(), newGroup(org.UID, "undone")); err == nil {
					t.Error("a write that fails went through")
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var got []int64
	deadline := time.Now().Add(90 * time.Second)
	for over := false; !over || len(got) < writers*each+1; {
		select {
		case <-done:
			over = true
		default:
		}
		all, err := tail.Next(t.Context(), 17)
		must(t, err)
		for _, e := range all {
			got = append(got, e.Seq)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events after 30 s", len(got))
		}
	}
	var want []int64
	for _, e := range events(t, s) {
		want = append(want, e.Seq)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// tailThatSkips checks that Skip passes over events, but not over an event that
// the caller wants to see.
func tailThatSkips(t *testing.T, s *storetest.Store) {
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	must(t, err)
	settle(t, tail)
	skip := func(n, want int, wantWhole bool) {
		t.Helper()
		got, whole, err := tail.Skip(t.Context(), n, resource.SubscriptionCreated)
		if err != nil || got != want || whole != wantWhole {
			t.Errorf("skipped %d, whole: %v, want %d, %v (%v)", got, whole, want, wantWhole, err)
		}
	}
	skip(10, 0, true)
	org := addGroup(t, s, "", "org")
	addGroup(t, s, org.UID, "a")
	addGroup(t, s, org.UID, "b")
	skip(2, 2, true)
	skip(10, 1, true)
	addGroup(t, s, org.UID, "c")
	v := addSubscription(t, s, org.UID)
	skip(1, 1, true)
	skip(10, 0, false)
	all, err := tail.Next(t.Context(), 10)
	if err != nil || len(all) != 1 || all[0].Subject != v.UID {
		t.Errorf("after what was skipped: %v, %v", all, err)
	}
}

// settle waits until every transaction that was running when the tail began has ended,
// including the transactions of other tests on the same server.
func settle(t *testing.T, tail *outbox.Tail) {
	t.Helper()
	for settled := false; !settled; {
		var err error
		settled, err = tail.Complete(t.Context())
		must(t, err)
	}
}

// wantNext reads until the tail returns events, and checks their ids.
func wantNext(t *testing.T, tail *outbox.Tail, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(90 * time.Second); len(got) < len(want) && time.Now().Before(deadline); {
		all, err := tail.Next(t.Context(), 100)
		must(t, err)
		for _, e := range all {
			got = append(got, e.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
}

// wantNothing checks that several calls of a tail's Next return no event.
func wantNothing(t *testing.T, tail *outbox.Tail) {
	t.Helper()
	for range 20 {
		if all, err := tail.Next(t.Context(), 100); err != nil || len(all) > 0 {
			t.Fatalf("events = %v, %v", all, err)
		}
	}
}

// TestTailOfPostgres checks that a tail skips no event if transactions end in another order than
// they began.
func TestTailOfPostgres(t *testing.T) {
	s := storetest.Open(t, storetest.Postgres(t))
	tail, err := outbox.NewTail(t.Context(), s.DB, 0)
	must(t, err)
	t.Run("a later number first", func(t *testing.T) {
		settle(t, tail)
		early, late := s.OpenEvent(t), s.OpenEvent(t)
		early.Record(t, "a")
		late.Record(t, "b")
		late.End(t, true)
		if n, whole, err := tail.Skip(t.Context(), 100, "x"); n != 0 || whole || err != nil {
			t.Errorf("skipped %d, whole: %v, %v", n, whole, err)
		}
		wantNothing(t, tail)
		early.End(t, true)
		wantNext(t, tail, "a", "b")
	})
	t.Run("a later number of an earlier transaction first", func(t *testing.T) {
		first, second := s.OpenEvent(t), s.OpenEvent(t)
		second.Record(t, "a")
		first.Record(t, "b")
		first.End(t, true) // the second transaction is still running
		wantNothing(t, tail)
		second.End(t, true)
		wantNext(t, tail, "a", "b")
	})
	t.Run("a number that never comes", func(t *testing.T) {
		early, late := s.OpenEvent(t), s.OpenEvent(t)
		early.Record(t, "a")
		late.Record(t, "b")
		late.End(t, true)
		wantNothing(t, tail)
		early.End(t, false)
		wantNext(t, tail, "b")
	})
	t.Run("one after another", func(t *testing.T) {
		one, two, three := s.OpenEvent(t), s.OpenEvent(t), s.OpenEvent(t)
		one.Record(t, "a")
		two.Record(t, "b")
		three.Record(t, "c")
		three.End(t, true)
		wantNothing(t, tail)
		one.End(t, true)
		wantNext(t, tail, "a")
		wantNothing(t, tail)
		two.End(t, true)
		wantNext(t, tail, "b", "c")
	})
	t.Run("a tail that begins late", func(t *testing.T) {
		early, late := s.OpenEvent(t), s.OpenEvent(t)
		early.Record(t, "a")
		late.Record(t, "b")
		late.End(t, true)
		last, err := s.LastEvent(t.Context())
		must(t, err)
		begun, err := outbox.NewTail(t.Context(), s.DB, last)
		must(t, err)
		if settled, err := begun.Complete(t.Context()); err != nil || settled {
			t.Errorf("settled: %v, %v", settled, err)
		}
		early.End(t, true)
		for settled := false; !settled; {
			settled, err = begun.Complete(t.Context())
			must(t, err)
		}
		if got, err := s.Events(t.Context(), last-2, 10); err != nil || len(got) != 2 {
			t.Errorf("%d events up to there, want 2 (%v)", len(got), err)
		}
	})
}

// TestSubscribeAndDelete subscribes to a group and deletes the group concurrently, and checks that
// the result is consistent.
func TestSubscribeAndDelete(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		for range 20 {
			g := addGroup(t, s, org.UID, string(org.UID.NewChild()[41:]))
			a, b := atOnce(
				func() error { return s.InsertSubscription(t.Context(), newSubscription(g.UID)) },
				func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			)
			if !(a == nil && errors.Is(b, fault.FailedPrecondition) || b == nil && errors.Is(a, fault.NotFound)) {
				t.Fatalf("subscribe: %v, delete the group: %v", a, b)
			}
			v := addSubscription(t, s, org.UID)
			a, b = atOnce(
				func() error { return s.GiveUp(t.Context(), v.UID, 9, given(v.UID, 7)) },
				func() error { return s.DeleteSubscription(t.Context(), v.UID) },
			)
			if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
				t.Fatalf("give up: %v, delete the subscription: %v", a, b)
			}
		}
		wantExact(t, s)
	})
}
