package groups

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	eventRate   = 1000 // number of changes per second
	eventRounds = 15
	eventLimit  = 2 * time.Minute
)

// Events compares the latency of changes at a fixed rate on two servers. One has a subscription in each of its
// folders, the other has none. Every second sink never responds. The other sinks must get every event.
func Events(ctx context.Context, m *rig.Measurement) {
	living, hang := newSink(), make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	m.AtEnd(func() error { // runs after the servers have stopped
		close(hang)
		dead.Close()
		living.server.Close()
		return nil
	})
	var instances [2]*instance
	for i, name := range []string{"events_with", "events_without"} {
		instances[i] = newInstance(ctx, m, name)
	}
	for i, folder := range instances[0].folders {
		sink := dead.URL
		if i%2 == 0 {
			sink = living.server.URL
		}
		path, body := "/events/v2beta1/subscriptions/"+string(folder), fmt.Sprintf(`{"sink": %q}`, sink)
		rig.Must(instances[0].Post(ctx, path, body))
	}
	var rounds [2][]eventRound
	for i := range eventRounds {
		for _, n := range [...]int{i % 2, 1 - i%2} { // the instance that comes first alternates
			t := instances[n].round(ctx, func() { living.await(ctx, instances[0].expected()) })
			rounds[n] = append(rounds[n], t)
		}
	}
	m.Slower("events: change with 100 subscriptions, half dead", compared(rounds, half), 1.2)
	m.Slower("events: the slowest tenth of them", compared(rounds, tenth), 0)
	m.Slower("events: processor time for a change, with its deliveries", compared(rounds, processor), 0)
	total := compared(rounds, took)
	m.Below("events: changes a second, both servers", 2*eventRate/(total.A+total.B).Seconds(), 0, rig.PerSecond)
	want := instances[0].expected()
	late, got := living.await(ctx, want)
	m.Exactly("events: changes that living sinks were told of", int64(got), int64(len(want)))
	m.Below("events: last one after the last change", late.Seconds(), 0, rig.Seconds)
}

// An eventRound contains the measurements for the changes during one second on one server.
type eventRound [4]time.Duration

const (
	half      = iota // median of the durations of changes
	tenth            // 90th percentile of the durations of changes
	took             // duration of the whole round
	processor        // processor time of this process per change, until the events are delivered
)

// round makes the changes of one second and calls wait, which returns when their events are delivered. If round did
// not wait, the deliveries would slow down the other server.
func (v *instance) round(ctx context.Context, wait func()) eventRound {
	begin, used := time.Now(), rig.ProcessorTime()
	each := v.change(ctx)
	total := time.Since(begin)
	wait()
	return eventRound{rig.Median(each), rig.Quantile(each, 0.9), total, (rig.ProcessorTime() - used) / eventRate}
}

// compared returns the medians of one measurement for both servers, and the median of the rounds' ratios.
func compared(rounds [2][]eventRound, figure int) rig.Pair {
	var as, bs []time.Duration
	var ratios []float64
	for i := range rounds[0] {
		a, b := rounds[0][i][figure], rounds[1][i][figure]
		as, bs, ratios = append(as, a), append(bs, b), append(ratios, a.Seconds()/b.Seconds())
	}
	return rig.Pair{A: rig.Median(as), B: rig.Median(bs), Ratio: rig.Median(ratios)}
}

// An instance is a server with an organization that has folders.
type instance struct {
	*rig.Client
	folders []resource.UID
	made    sync.Map // maps a created group to the index of its folder
}

// newInstance starts a server on an empty database, and creates its folders.
func newInstance(ctx context.Context, m *rig.Measurement, name string) *instance {
	s := m.Serve(ctx, rig.EmptyDatabase(ctx, m.Engine, name))
	return &instance{Client: s.Client, folders: s.CreateFolders(ctx, s.Org)}
}

// change makes the changes of one second, at eventRate. It returns the duration of each change, measured from the
// moment at which the change was due.
func (v *instance) change(ctx context.Context) []time.Duration {
	took := make([]time.Duration, eventRate)
	start := time.Now()
	rig.Check(rig.Concurrently(rig.Clients, func(client int) error {
		for i := client; i < eventRate; i += rig.Clients {
			due := start.Add(time.Duration(i) * time.Second / eventRate)
			time.Sleep(time.Until(due))
			folder := rand.IntN(len(v.folders))
			uid, err := v.Post(ctx, "/iam/v2beta1/groups/"+string(v.folders[folder]), `{"name": "`+rig.NewName()+`"}`)
			if err != nil {
				return err
			}
			took[i] = time.Since(due)
			v.made.Store(uid, folder)
		}
		return nil
	}))
	return took
}

// expected returns the UIDs of the groups whose events the responding sinks must get.
func (v *instance) expected() (uids []string) {
	for uid, folder := range v.made.Range {
		if folder.(int)%2 == 0 {
			uids = append(uids, uid.(string))
		}
	}
	return uids
}

// A sink stores the subjects of the events that it receives.
type sink struct {
	server   *httptest.Server
	received sync.Map
}

func newSink() *sink {
	v := &sink{}
	v.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		v.received.Store(r.Header.Get("Ce-Subject"), true)
	}))
	return v
}

// await waits until the events of all groups have arrived, or until eventLimit has passed. It returns the time that it
// waited, and the number of events that have arrived.
func (v *sink) await(ctx context.Context, uids []string) (took time.Duration, got int) {
	begin := time.Now()
	for ctx.Err() == nil && time.Since(begin) < eventLimit && got < len(uids) {
		got = 0
		for _, uid := range uids {
			if _, ok := v.received.Load(uid); ok {
				got++
			}
		}
		if got < len(uids) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return time.Since(begin), got
}
