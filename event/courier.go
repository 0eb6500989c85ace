package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	window      = 512 // events of one subscription that are under way or wait their turn
	flights     = 4   // requests to one sink at once
	downAfter   = 3   // failures in a row after which a sink is left alone
	answerLimit = 64 << 10

	landingGrace = 2 * time.Second // for requests under way when all ends
	replayChunk  = 100

	lazily = 10_000 // numbers that a subscription may come on without that being noted
)

// A courier serves one subscription. It has connections of its own, so that one
// sink cannot take those of another.
//
// Events wait in their order; one may go when no earlier one of its subject is
// waiting. A sink that fails again and again is down: then one request after
// another finds out whether it is back, and nothing else is sent.
type courier struct {
	d      *Dispatcher
	sub    resource.Subscription
	label  http.Header // of every delivery
	client *http.Client
	wake   chan struct{}
	flying sync.WaitGroup

	mu       sync.Mutex // of this paragraph, and of the items
	waiting  []*item
	read     int64 // every event up to this is in waiting, or done with
	inFlight int
	failures int       // in a row
	down     bool      // the sink, as far as we know
	retryAt  time.Time // when to look whether it is back

	come      atomic.Int64 // every event up to this is done with
	noted     int64        // what the store knows of that; the dispatcher's
	done      atomic.Bool  // something was taken since
	replaying sync.Mutex
}

// An item is an event that waits for a courier.
type item struct {
	*entry
	flying bool
	tries  int
	err    string
	next   time.Time
	last   time.Time
}

func newCourier(d *Dispatcher, sub resource.Subscription, cursor int64) *courier {
	c := &courier{
		d: d, sub: sub, label: label(d.cfg.Names, sub), client: outbound.Client(d.cfg.Reach), wake: make(chan struct{}, 1),
		read: cursor, noted: cursor,
	}
	c.come.Store(cursor)
	return c
}

// rouse lets the courier know that there may be something to do.
func (c *courier) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run serves the subscription until ctx ends, or the subscription does.
func (c *courier) run(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	aloft, crash := context.WithCancel(context.WithoutCancel(ctx)) // of what is under way
	defer context.AfterFunc(ctx, func() { time.AfterFunc(landingGrace, crash) })()
	defer func() {
		cancel()
		c.flying.Wait()
		crash()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		err := c.fill(ctx)
		if err == nil {
			err = c.expire(ctx)
		}
		if errors.Is(err, fault.NotFound) {
			return // the subscription is gone
		}
		wait := c.launch(ctx, aloft)
		if err != nil && ctx.Err() == nil {
			c.d.cfg.Log.WarnContext(ctx, "read events", "subscription", c.sub.UID, "err", err)
			wait = min(wait, time.Second)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// fill takes events from the feed while there is room for them.
func (c *courier) fill(ctx context.Context) error {
	for read, room := c.progress(); room; {
		all, at, err := c.d.feed.follow(ctx, read, window/2)
		if err != nil {
			return err
		}
		if at == read {
			return nil
		}
		c.add(all, at)
		read, room = c.progress()
	}
	return nil
}

// progress returns up to where events were read, and whether there is room for
// more.
func (c *courier) progress() (read int64, room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read, len(c.waiting) < window/2
}

// add takes what the subscription wants of the events up to that number.
func (c *courier) add(all []*entry, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range all {
		if c.sub.Wants(&e.Event) {
			c.waiting = append(c.waiting, &item{entry: e})
		}
	}
	c.read = at
	c.note()
}

// note makes known how far the subscription has come.
func (c *courier) note() {
	come := c.read
	if len(c.waiting) > 0 {
		come = c.waiting[0].Seq - 1
	}
	c.come.Store(come)
}

// expire gives up the events that are too old and have failed, or that nobody
// would take. They are kept, for a replay.
func (c *courier) expire(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.d.cfg.Now()
	if len(c.waiting) == 0 || now.Sub(c.waiting[0].Time) < c.d.cfg.GiveUp {
		return nil // those behind it are younger
	}
	var over []resource.Delivery
	old := func(i *item) bool { return !i.flying && (c.down || i.tries > 0) && now.Sub(i.Time) >= c.d.cfg.GiveUp }
	if !slices.ContainsFunc(c.waiting, old) {
		return nil
	}
	rest := c.waiting[:0:0]
	for _, i := range c.waiting {
		if !old(i) {
			rest = append(rest, i)
			continue
		}
		why := i.err
		if why == "" {
			why = "the sink was down all the while"
		}
		over = append(over, resource.Delivery{
			UID: c.sub.UID.NewChild(), Event: i.Event, Attempts: i.tries, Error: why, CreateTime: now, UpdateTime: i.last,
		})
	}
	come := c.read
	if len(rest) > 0 {
		come = rest[0].Seq - 1
	}
	if err := c.d.store.GiveUp(ctx, c.sub.UID, come, over); err != nil {
		return err
	}
	c.d.cfg.Log.WarnContext(ctx, "events were given up", "subscription", c.sub.UID, "events", len(over))
	c.waiting = rest
	c.note()
	c.rouse() // there is room again
	return nil
}

// launch sends what may be sent, and returns when to look again.
func (c *courier) launch(ctx, aloft context.Context) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, soon := c.d.cfg.Now(), time.Minute
	if c.inFlight >= flights {
		return soon
	}
	if c.down {
		switch {
		case len(c.waiting) == 0 || c.inFlight > 0:
		case now.Before(c.retryAt):
			soon = min(soon, c.retryAt.Sub(now))
		default:
			c.start(ctx, aloft, c.waiting[0], now)
		}
		return soon
	}
	subjects := map[resource.UID]bool{}
	for _, i := range c.waiting {
		if c.inFlight >= flights {
			break
		}
		if subjects[i.Subject] {
			continue // an earlier one is first
		}
		subjects[i.Subject] = true
		switch {
		case i.flying:
		case now.Before(i.next):
			soon = min(soon, i.next.Sub(now))
		default:
			c.start(ctx, aloft, i, now)
		}
	}
	return soon
}

func (c *courier) start(ctx, aloft context.Context, i *item, now time.Time) {
	i.flying, i.last = true, now
	c.inFlight++
	c.flying.Go(func() {
		wait, err := c.send(aloft, i.entry)
		if c.land(ctx, i, wait, err) {
			c.rouse()
		}
	})
}

// land notes how an attempt ended, and how long the sink asked us to wait if it
// failed. It tells whether there is more to do: the last event that was waiting
// wakes nobody.
func (c *courier) land(ctx context.Context, i *item, wait time.Duration, err error) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.flying = false
	c.inFlight--
	if err == nil {
		if c.down {
			c.d.cfg.Log.InfoContext(ctx, "a sink is back", "subscription", c.sub.UID)
			for _, other := range c.waiting {
				other.next = time.Time{}
			}
		}
		c.failures, c.down = 0, false
		c.waiting = slices.DeleteFunc(c.waiting, func(other *item) bool { return other == i })
		c.note()
		c.done.Store(true)
		return len(c.waiting) > c.inFlight
	}
	if ctx.Err() != nil {
		return false
	}
	i.tries++
	i.err = err.Error()
	c.failures++
	now := c.d.cfg.Now()
	i.next = now.Add(max(c.d.backoff(i.tries), wait))
	if c.failures >= downAfter {
		if !c.down {
			c.d.cfg.Log.WarnContext(ctx, "a sink is down", "subscription", c.sub.UID, "err", i.err)
		}
		c.down = true
		c.retryAt = now.Add(max(c.d.backoff(c.failures-downAfter+1), wait))
	}
	return true
}

// maxWait is how long a sink may ask us to wait.
const maxWait = time.Hour

// send makes one attempt. Its error is fit for those who read deliveries.
func (c *courier) send(ctx context.Context, e *entry) (wait time.Duration, _ error) {
	v, err := e.seal()
	if err != nil {
		c.d.cfg.Log.ErrorContext(ctx, "write an event", "event", e.ID, "err", err)
		return 0, errors.New("the event could not be written")
	}
	token, err := c.d.sign(ctx, c.sub.Group(), v.digest)
	if err != nil {
		c.d.cfg.Log.ErrorContext(ctx, "sign an event", "event", e.ID, "err", err)
		return 0, errors.New("the event could not be signed")
	}
	r, err := v.request(ctx, c.sub.Sink, c.label, token)
	if err != nil {
		return 0, errors.New("the sink is not an address")
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, errors.New(outbound.Reason(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, answerLimit) // so that the connection can be used again
	if answer.StatusCode/100 == 2 {
		return 0, nil
	}
	return min(maxWait, retryAfter(answer.Header, c.d.cfg.Now())), fmt.Errorf("the sink answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
}

// replay sends again what was asked for, one after the other, until nothing is
// left. It returns at once if that is being done.
func (c *courier) replay(ctx context.Context) error {
	if !c.replaying.TryLock() {
		return nil
	}
	defer c.replaying.Unlock()
	for {
		all, err := c.d.store.Replays(ctx, c.sub.UID, replayChunk)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, d := range all {
			_, err := c.send(ctx, c.d.feed.entry(d.Event))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d.Attempts++
			d.UpdateTime = c.d.cfg.Now()
			if err != nil {
				d.Error = err.Error()
			}
			if err := c.d.store.Replayed(ctx, d, err == nil); err != nil {
				return err
			}
		}
	}
}

// backoff is how long to wait after so many failures: twice as long each time,
// up to a bound, and not the same for everybody.
func (d *Dispatcher) backoff(failures int) time.Duration {
	wait := d.cfg.RetryMax
	if shift := failures - 1; shift < 16 {
		wait = min(wait, d.cfg.RetryMin<<shift)
	}
	return wait/2 + rand.N(wait)
}
