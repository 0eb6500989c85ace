package event_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const patience = time.Minute // maximum time that a test waits for an expected event

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A sink is an HTTP server that records the events that it accepts.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	taken []taken
	more  chan struct{} // closed and replaced when the next event is accepted
	// judge decides whether to accept request n. If it is nil, the sink accepts all requests.
	judge    func(n int, w http.ResponseWriter) (took bool)
	requests int
}

type taken struct{ id, subject, data string }

func newSink(t *testing.T, judge func(n int, w http.ResponseWriter) bool) *sink {
	s := &sink{more: make(chan struct{}), judge: judge}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP accepts or refuses a delivery.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n, judge := s.requests, s.judge
	s.requests++
	s.mu.Unlock()
	if judge != nil && !judge(n, w) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, taken{r.Header.Get("Ce-Id"), r.Header.Get("Ce-Subject"), string(data)})
	close(s.more)
	s.more = make(chan struct{})
}

// await returns the accepted events as soon as ok returns true for them.
func (s *sink) await(t *testing.T, what string, ok func([]taken) bool) []taken {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		got, more := slices.Clone(s.taken), s.more
		s.mu.Unlock()
		if ok(got) {
			return got
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%s: %d events were accepted", what, len(got))
		}
	}
}

// has returns a function that reports whether events of all subjects were accepted.
func has(subjects ...resource.UID) func([]taken) bool {
	return func(all []taken) bool {
		return !slices.ContainsFunc(subjects, func(uid resource.UID) bool {
			return !slices.ContainsFunc(all, func(v taken) bool { return v.subject == string(uid) })
		})
	}
}

// A fixture is a store with an organization and an issuer that signs events.
type fixture struct {
	store  *storetest.Store
	issuer *token.Issuer
	org    resource.UID
}

func newFixture(t *testing.T, s *storetest.Store) *fixture {
	t.Helper()
	issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "https://issuer.test", Key: secret.NewKey()})
	must(t, err)
	w := &fixture{store: s, issuer: issuer, org: resource.NewRoot()}
	_, err = s.InsertGroup(t.Context(), resource.Group{UID: w.org, Name: "org"})
	must(t, err)
	return w
}

// dispatch runs a dispatcher until the function it returns is called.
func (w *fixture) dispatch(t *testing.T, cfg event.Config) (stop func()) {
	t.Helper()
	cfg.Names, cfg.Source = event.Names{Prefix: "dev.test", Extension: "test"}, "https://api.test"
	cfg.Render = func(_ context.Context, e resource.Event) (event.Body, error) {
		return event.Body{JSON: e.After}, nil
	}
	cfg.Reach.Loopback, cfg.Reach.Timeout = true, cmp.Or(cfg.Reach.Timeout, patience)
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.RetryMin == 0 {
		cfg.RetryMin, cfg.RetryMax = time.Millisecond, 20*time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	d := event.NewDispatcher(w.store.DB, w.issuer, cfg)
	go func() {
		defer close(ended)
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

func (w *fixture) subscribe(t *testing.T, group resource.UID, s *sink) resource.Subscription {
	t.Helper()
	v := resource.Subscription{UID: group.NewChild(), Sink: s.URL, CreateTime: time.Now()}
	must(t, w.store.InsertSubscription(t.Context(), v))
	return v
}

// folders creates n groups in parent.
func (w *fixture) folders(t *testing.T, parent resource.UID, n int) (all []resource.UID) {
	t.Helper()
	for range n {
		uid := parent.NewChild()
		_, err := w.store.InsertGroup(t.Context(), resource.Group{UID: uid, Name: string(uid[len(uid)-16:])})
		must(t, err)
		all = append(all, uid)
	}
	return all
}

func each(t *testing.T, f func(t *testing.T, w *fixture)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) { f(t, newFixture(t, s)) })
}

// TestOrder checks that the events of one subject are delivered in order, each at least once and with one ID, although
// the sink refuses every other request.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		refuses := newSink(t, func(n int, rw http.ResponseWriter) bool {
			if n%2 == 0 {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			return n%2 == 1
		})
		w.subscribe(t, w.org, refuses)
		w.dispatch(t, event.Config{})
		subjects := w.folders(t, w.org, 3)
		var want []string
		for n := range 10 {
			want = append(want, fmt.Sprint("d", n))
			for _, uid := range subjects {
				change := func(g *resource.Group) error { g.Description = want[n]; return nil }
				_, err := store.Edit(t.Context(), uid, w.store.Group, w.store.UpdateGroup, change)
				must(t, err)
			}
		}
		ids := map[string]taken{}
		refuses.await(t, "every change", func(all []taken) bool {
			for _, v := range all {
				ids[v.id] = v
			}
			return len(ids) == 1+3+30 // events: the subscription, 3 groups, 10 changes of each group
		})
		last := map[string]string{}
		for _, v := range refuses.await(t, "all", func([]taken) bool { return true }) {
			if v != ids[v.id] {
				t.Errorf("%s came as %+v and as %+v", v.id, v, ids[v.id])
			}
			// Two events about one subject differ only in the description and in the update time, which comes later in
			// the text. So texts of the same length sort by the number in the description.
			if v.data < last[v.subject] && len(v.data) == len(last[v.subject]) {
				t.Errorf("%s came after %s", v.data, last[v.subject])
			}
			last[v.subject] = v.data
		}
	})
}

// TestScope checks that subscriptions receive the events of their group and of the groups below it.
func TestScope(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		two := w.folders(t, w.org, 2)
		top, left, right := newSink(t, nil), newSink(t, nil), newSink(t, nil)
		w.subscribe(t, w.org, top)
		gone := w.subscribe(t, two[0], left)
		w.subscribe(t, two[1], right)
		w.dispatch(t, event.Config{})
		below := []resource.UID{w.folders(t, two[0], 1)[0], w.folders(t, two[1], 1)[0]}
		top.await(t, "both", has(below...))
		left.await(t, "its own", has(below[0]))
		right.await(t, "its own", has(below[1]))
		must(t, w.store.DeleteSubscription(t.Context(), gone.UID))
		late := w.folders(t, two[0], 1)
		top.await(t, "what came after", has(late...))
		if has(late...)(left.await(t, "all", func([]taken) bool { return true })) {
			t.Error("an event was sent to a deleted subscription")
		}
		last := w.folders(t, two[1], 1)
		for _, v := range right.await(t, "the last", has(last...)) {
			if !two[1].Covers(resource.UID(v.subject)) {
				t.Errorf("%s, which is outside the group, was sent", v.subject)
			}
		}
	})
}

// TestFirstSubscription checks that a dispatcher that had no subscriptions, and therefore skipped events, delivers only
// the events after the first subscription. It repeats this several times.
func TestFirstSubscription(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.dispatch(t, event.Config{})
		for range 3 {
			before := w.folders(t, w.org, 40)
			s := newSink(t, nil)
			v := w.subscribe(t, w.org, s)
			after := w.folders(t, w.org, 40)
			got := s.await(t, "the events after the subscription", has(after...))
			if slices.ContainsFunc(got,
				func(g taken) bool { return slices.Contains(before, resource.UID(g.subject)) }) {
				t.Error("an event from before the subscription was sent")
			}
			must(t, w.store.DeleteSubscription(t.Context(), v.UID))
		}
	})
}

// TestDeadSinks checks that sinks that never respond, or do not exist, do not prevent deliveries to another sink.
func TestDeadSinks(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		release := make(chan struct{})
		hangs := newSink(t, func(int, http.ResponseWriter) bool { <-release; return false })
		t.Cleanup(func() { close(release) })
		away := newSink(t, nil)
		away.Close()
		lives := newSink(t, nil)
		for range 3 {
			w.subscribe(t, w.org, hangs)
			w.subscribe(t, w.org, away)
		}
		w.subscribe(t, w.org, lives)
		w.dispatch(t, event.Config{Reach: outbound.Config{Timeout: 2 * time.Second}})
		start := time.Now()
		all := w.folders(t, w.org, 100)
		lives.await(t, "every change", has(all...))
		t.Logf("%d changes were taken %s after the first", len(all), time.Since(start))
	})
}

// TestGiveUp checks that events that a sink refuses are given up, and that a replay delivers them when the sink accepts
// events again.
func TestGiveUp(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		var well sync.Map
		s := newSink(t, func(_ int, rw http.ResponseWriter) bool {
			_, ok := well.Load("well")
			if !ok {
				rw.WriteHeader(http.StatusInternalServerError)
			}
			return ok
		})
		v := w.subscribe(t, w.org, s)
		w.dispatch(t, event.Config{GiveUp: time.Millisecond})
		all := w.folders(t, w.org, 5)
		f := resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: v.UID}}
		given := func() []resource.Delivery {
			p, err := w.store.Deliveries(t.Context(), store.Reach{Under: []resource.UID{w.org}}, f,
				page.Request{Size: 100, Order: page.Order{Field: "uid"}})
			must(t, err)
			return p.Items
		}
		// There are five changes, and the event about the creation of the subscription.
		until(t, "all are given up", func() bool { return len(given()) == 6 })
		kept := given()
		for _, d := range kept {
			if d.Error != "the sink answered 500 Internal Server Error" &&
				d.Error != "the sink was down the whole time" {
				t.Errorf("error = %q", d.Error)
			}
		}
		_, err := w.store.ScheduleReplay(t.Context(), kept[0].UID)
		must(t, err)
		until(t, "the replay has failed", func() bool {
			d, err := w.store.Delivery(t.Context(), kept[0].UID)
			must(t, err)
			return !d.Replaying && d.Attempts == kept[0].Attempts+1
		})
		well.Store("well", true)
		_, err = w.store.ScheduleReplay(t.Context(), v.UID)
		must(t, err)
		got := s.await(t, "the replayed events", has(all...))
		until(t, "the list is empty", func() bool { return len(given()) == 0 })
		for _, d := range kept {
			if !slices.ContainsFunc(got,
				func(v taken) bool { return v.id == d.Event.ID && v.subject == string(d.Event.Subject) }) {
				t.Errorf("%s was not delivered with its id", d.Event.ID)
			}
		}
	})
}

// until waits until ok returns true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not true after %s: %s", patience, what)
		}
	}
}

// TestRestart checks that no event is lost if dispatchers stop and start.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		s := newSink(t, nil)
		w.subscribe(t, w.org, s)
		var all []resource.UID
		for range 3 {
			stop := w.dispatch(t, event.Config{})
			all = append(all, w.folders(t, w.org, 10)...)
			s.await(t, "some", has(all[:len(all)-5]...))
			stop()
			all = append(all, w.folders(t, w.org, 10)...)
		}
		w.dispatch(t, event.Config{})
		s.await(t, "everything", has(all...))
	})
}

// TestReplicas checks that two dispatchers on one database send every event once, and that one takes over when the
// other stops.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := newFixture(t, storetest.Open(t, storetest.Postgres(t)))
	s := newSink(t, nil)
	w.subscribe(t, w.org, s)
	stops := []func(){w.dispatch(t, event.Config{}), w.dispatch(t, event.Config{})}
	var all []resource.UID
	for _, stop := range append(stops, func() {}) {
		all = append(all, w.folders(t, w.org, 20)...)
		if len(all) == 60 {
			w.dispatch(t, event.Config{}) // starts a third dispatcher after the first two have stopped
		}
		got := s.await(t, "everything so far", has(all...))
		times := map[string]int{}
		for _, v := range got {
			times[v.id]++
		}
		if len(times) != len(got) {
			t.Errorf("%d events came %d times", len(times), len(got))
		}
		stop()
	}
}
