package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	eventRate    = 1000 // changes a second
	eventRounds  = 15
	eventFolders = 100 // each with a subscription
	eventLimit   = 2 * time.Minute
)

// events compares the latency of changes, made at a fixed rate, of a server with
// a subscription in each of its folders, every other one to a sink that never
// answers, with one that has none. The living sinks must get every event.
func events(ctx context.Context, b *bench, e engine, r *report) (err error) {
	living := newInbox()
	defer living.server.Close()
	hang := make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer dead.Close()
	defer close(hang)
	var sides [2]*side
	for i, name := range []string{"events_with", "events_without"} {
		if sides[i], err = b.side(ctx, e, name); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sides[i].service.stop()) }()
	}
	for i, folder := range sides[0].folders {
		sink := dead.URL
		if i%2 == 0 {
			sink = living.server.URL
		}
		if err := sides[0].subscribe(ctx, folder, sink); err != nil {
			return err
		}
	}
	var all [2][]turn
	for i := range eventRounds {
		for _, n := range [...]int{i % 2, 1 - i%2} { // each is first every other time
			t, err := sides[n].turn(ctx, func() { living.await(ctx, sides[0].expected()) })
			if err != nil {
				return err
			}
			all[n] = append(all[n], t)
		}
	}
	r.slower("events: change with 100 subscriptions, half dead", compared(all, func(t turn) time.Duration { return t.half }), 1.2)
	r.slower("events: the slowest tenth of them", compared(all, func(t turn) time.Duration { return t.tenth }), 0)
	r.slower("events: processor time for a change, with all that it leads to", compared(all, func(t turn) time.Duration { return t.processor }), 0)
	pace := compared(all, func(t turn) time.Duration { return t.took })
	r.under("events: changes a second, both sides", 2*eventRate/(pace.a+pace.b).Seconds(), 0, perSecond)
	want := sides[0].expected()
	late, got := living.await(ctx, want)
	r.exactly("events: changes that living sinks were told of", int64(got), int64(len(want)))
	r.under("events: last one after the last change", late.Seconds(), 0, seconds)
	return nil
}

// A turn is a second's changes on one side.
type turn struct {
	half, tenth time.Duration // that half of the changes took at most, and that the slowest tenth took at least
	took        time.Duration // all of them
	processor   time.Duration // of this process, for each, until their events were delivered
}

// turn makes a second's changes, and waits until what they lead to is over, so
// that the other side does not pay for it.
func (v *side) turn(ctx context.Context, over func()) (turn, error) {
	begin, used := time.Now(), processorTime()
	each, err := v.paced(ctx)
	if err != nil {
		return turn{}, err
	}
	took := time.Since(begin)
	over()
	return turn{median(each), quantile(each, 0.9), took, (processorTime() - used) / eventRate}, nil
}

// compared is a figure of both sides' turns: medians, and the median of the
// rounds' ratios.
func compared(all [2][]turn, of func(turn) time.Duration) pair {
	var figures [2][]time.Duration
	var ratios []float64
	for i := range all[0] {
		a, b := of(all[0][i]), of(all[1][i])
		figures[0], figures[1] = append(figures[0], a), append(figures[1], b)
		ratios = append(ratios, a.Seconds()/b.Seconds())
	}
	return pair{a: median(figures[0]), b: median(figures[1]), ratio: median(ratios)}
}

// A side is one of the two servers.
type side struct {
	service *service
	client  *client
	folders []resource.UID

	mu   sync.Mutex
	made map[string]int // group → its folder
}

// side starts a server on an empty database, and makes its folders.
func (b *bench) side(ctx context.Context, e engine, name string) (*side, error) {
	url, _, err := e.create(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := e.replace(ctx, url); err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, url)
	if err != nil {
		return nil, err
	}
	v := newSide(s)
	if err := v.makeFolders(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return v, nil
}

func newSide(s *service) *side {
	return &side{service: s, client: newClient(s.token), made: map[string]int{}}
}

// makeFolders makes groups directly under the organization.
func (v *side) makeFolders(ctx context.Context) error {
	for i := range eventFolders {
		uid, err := v.post(ctx, "/iam/v2beta1/groups/"+string(v.service.org), fmt.Sprintf(`{"name": "f%d"}`, i))
		if err != nil {
			return err
		}
		v.folders = append(v.folders, resource.UID(uid))
	}
	return nil
}

func (v *side) subscribe(ctx context.Context, folder resource.UID, sink string) error {
	_, err := v.post(ctx, "/events/v2beta1/subscriptions/"+string(folder), fmt.Sprintf(`{"sink": %q}`, sink))
	return err
}

// post creates something and returns its uid.
func (v *side) post(ctx context.Context, path, body string) (string, error) {
	_, answer, err := v.client.do(ctx, http.MethodPost, "http://"+v.service.addr+path, body)
	if err != nil {
		return "", err
	}
	var made struct{ UID string }
	err = json.Unmarshal(answer, &made)
	return made.UID, err
}

// paced makes a second's changes at the rate, and returns how long each took from
// the moment it was due.
func (v *side) paced(ctx context.Context) ([]time.Duration, error) {
	took := make([]time.Duration, eventRate)
	start := time.Now()
	err := together(clients, func(client int) error {
		for i := client; i < eventRate; i += clients {
			due := start.Add(time.Duration(i) * time.Second / eventRate)
			time.Sleep(time.Until(due))
			folder := rand.IntN(len(v.folders))
			uid, err := v.post(ctx, "/iam/v2beta1/groups/"+string(v.folders[folder]), fmt.Sprintf(`{"name": "n-%016x"}`, rand.Uint64()))
			if err != nil {
				return err
			}
			took[i] = time.Since(due)
			v.mu.Lock()
			v.made[uid] = folder
			v.mu.Unlock()
		}
		return nil
	})
	return took, err
}

// expected are the groups that living sinks must hear of.
func (v *side) expected() (all []string) {
	for uid, folder := range v.made {
		if folder%2 == 0 {
			all = append(all, uid)
		}
	}
	return all
}

// An inbox is a sink that remembers the subjects of its events.
type inbox struct {
	server *httptest.Server
	mu     sync.Mutex
	heard  map[string]bool
}

func newInbox() *inbox {
	v := &inbox{heard: map[string]bool{}}
	v.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.heard[r.Header.Get("Ce-Subject")] = true
	}))
	return v
}

// await waits until all have come, for as long as is sensible, and returns how
// long that took and how many have.
func (v *inbox) await(ctx context.Context, all []string) (took time.Duration, got int) {
	begin := time.Now()
	for ctx.Err() == nil && time.Since(begin) < eventLimit {
		v.mu.Lock()
		got = 0
		for _, uid := range all {
			if v.heard[uid] {
				got++
			}
		}
		v.mu.Unlock()
		if got == len(all) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin), got
}
