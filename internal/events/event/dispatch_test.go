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

const patience = time.Minute // for what must come

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A sink is a receiver that remembers what it has taken.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	taken []taken
	more  chan struct{}                                  // closed at the next one
	judge func(n int, w http.ResponseWriter) (took bool) // the n-th request; nil takes all
	asked int
}

type taken struct{ id, subject, data string }

func newSink(t *testing.T, judge func(n int, w http.ResponseWriter) bool) *sink {
	s := &sink{more: make(chan struct{}), judge: judge}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP takes a delivery, or not.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n, judge := s.asked, s.judge
	s.asked++
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

// await returns what was taken once ok says that it is enough.
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
			t.Fatalf("%s: %d were taken", what, len(got))
		}
	}
}

// has tells whether the events of all the subjects were taken.
func has(subjects ...resource.UID) func([]taken) bool {
	return func(all []taken) bool {
		return !slices.ContainsFunc(subjects, func(uid resource.UID) bool {
			return !slices.ContainsFunc(all, func(v taken) bool { return v.subject == string(uid) })
		})
	}
}

// A world is a store with an organization, and who signs.
type world struct {
	store  *storetest.Store
	issuer *token.Issuer
	org    resource.UID
}

func newWorld(t *testing.T, s *storetest.Store) *world {
	t.Helper()
	issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "https://issuer.test", Key: secret.NewKey()})
	must(t, err)
	w := &world{store: s, issuer: issuer, org: resource.NewRoot()}
	_, err = s.InsertGroup(t.Context(), resource.Group{UID: w.org, Name: "org"})
	must(t, err)
	return w
}

// dispatch runs a dispatcher until the function it returns is called.
func (w *world) dispatch(t *testing.T, cfg event.Config) (stop func()) {
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

func (w *world) subscribe(t *testing.T, group resource.UID, s *sink) resource.Subscription {
	t.Helper()
	v := resource.Subscription{UID: group.NewChild(), Sink: s.URL, CreateTime: time.Now()}
	must(t, w.store.InsertSubscription(t.Context(), v))
	return v
}

// folders adds n groups.
func (w *world) folders(t *testing.T, parent resource.UID, n int) (all []resource.UID) {
	t.Helper()
	for range n {
		uid := parent.NewChild()
		_, err := w.store.InsertGroup(t.Context(), resource.Group{UID: uid, Name: string(uid[len(uid)-16:])})
		must(t, err)
		all = append(all, uid)
	}
	return all
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) { f(t, newWorld(t, s)) })
}

// TestOrder has a sink refuse every other request: the events of one subject
// still come in their order, each at least once and under one id.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
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
				_, err := store.Edit(t.Context(), uid, w.store.Group, w.store.UpdateGroup, func(g *resource.Group) error { g.Description = want[n]; return nil })
				must(t, err)
			}
		}
		ids := map[string]taken{}
		refuses.await(t, "every change", func(all []taken) bool {
			for _, v := range all {
				ids[v.id] = v
			}
			return len(ids) == 1+3+30 // its own, the groups, their changes
		})
		last := map[string]string{}
		for _, v := range refuses.await(t, "all", func([]taken) bool { return true }) {
			if v != ids[v.id] {
				t.Errorf("%s came as %+v and as %+v", v.id, v, ids[v.id])
			}
			// the data differ in the description, and the time after it
			if v.data < last[v.subject] && len(v.data) == len(last[v.subject]) {
				t.Errorf("%s came after %s", v.data, last[v.subject])
			}
			last[v.subject] = v.data
		}
	})
}

// TestScope has subscriptions get what happens in their group and below it.
func TestScope(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
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
			t.Error("it was sent to a subscription that is gone")
		}
		last := w.folders(t, two[1], 1)
		for _, v := range right.await(t, "the last", has(last...)) {
			if !two[1].Covers(resource.UID(v.subject)) {
				t.Errorf("%s, which is beside the group, was sent", v.subject)
			}
		}
	})
}

// TestDeadSinks has sinks that never answer, and one that is not there, beside
// one that lives.
// TestTheFirstSubscription: a dispatcher that had nobody to send to, and looked at
// nothing, sends what comes after the first subscription, and nothing from
// before it; also when that was the first of several times.
func TestTheFirstSubscription(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.dispatch(t, event.Config{})
		for range 3 {
			before := w.folders(t, w.org, 40)
			s := newSink(t, nil)
			v := w.subscribe(t, w.org, s)
			after := w.folders(t, w.org, 40)
			got := s.await(t, "those after it", has(after...))
			if slices.ContainsFunc(got,
				func(g taken) bool { return slices.Contains(before, resource.UID(g.subject)) }) {
				t.Error("one from before it was sent")
			}
			must(t, w.store.DeleteSubscription(t.Context(), v.UID))
		}
	})
}

func TestDeadSinks(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
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

// TestGiveUp has a sink that refuses all until it takes what is replayed.
func TestGiveUp(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
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
		until(t, "all are given up", func() bool { return len(given()) == 6 }) // its own is one
		kept := given()
		for _, d := range kept {
			if d.Error != "the sink answered 500 Internal Server Error" &&
				d.Error != "the sink was down all the while" {
				t.Errorf("error = %q", d.Error)
			}
		}
		_, err := w.store.RequestReplay(t.Context(), kept[0].UID)
		must(t, err)
		until(t, "the replay has failed", func() bool {
			d, err := w.store.Delivery(t.Context(), kept[0].UID)
			must(t, err)
			return !d.Replaying && d.Attempts == kept[0].Attempts+1
		})
		well.Store("well", true)
		_, err = w.store.RequestReplay(t.Context(), v.UID)
		must(t, err)
		got := s.await(t, "what was replayed", has(all...))
		until(t, "the list is empty", func() bool { return len(given()) == 0 })
		for _, d := range kept {
			if !slices.ContainsFunc(got,
				func(v taken) bool { return v.id == d.Event.ID && v.subject == string(d.Event.Subject) }) {
				t.Errorf("%s did not come under its id", d.Event.ID)
			}
		}
	})
}

// until asks again and again whether something has come to be.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %s: %s", patience, what)
		}
	}
}

// TestRestart has dispatchers come and go: nothing is lost.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
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

// TestReplicas has two dispatchers share a database: everything is sent once, and
// the other takes over.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Open(t, storetest.Postgres(t)))
	s := newSink(t, nil)
	w.subscribe(t, w.org, s)
	stops := []func(){w.dispatch(t, event.Config{}), w.dispatch(t, event.Config{})}
	var all []resource.UID
	for _, stop := range append(stops, func() {}) {
		all = append(all, w.folders(t, w.org, 20)...)
		if len(all) == 60 {
			w.dispatch(t, event.Config{}) // the last resort
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
