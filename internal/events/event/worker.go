package event

import (
	"cmp"
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

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

const (
	queueSize     = 512       // queued events per subscription, including those in flight
	maxInFlight   = 4         // parallel requests per sink
	downAfter     = 3         // consecutive failures after which a sink is considered down
	responseLimit = 64 << 10  // bytes read from a response
	maxRetryAfter = time.Hour // longest wait that a sink can ask for

	shutdownGrace = 2 * time.Second // time for requests in flight after the worker stops
	replayChunk   = 100             // maximum number of deliveries per read

	// cursorLag limits how far the cursor of a subscription that receives no events may be ahead of its stored value.
	cursorLag = 10_000
)

// A worker delivers the events of one subscription. It has its own HTTP client, so that a slow sink does not use up the
// connections of other sinks.
//
// Events are queued in order. An event is sent when no earlier event of the same subject is queued. After downAfter
// consecutive failures the sink is considered down. Then the worker sends only one request at a time, until one
// succeeds.
type worker struct {
	d       *Dispatcher
	sub     resource.Subscription
	headers http.Header // headers of every delivery
	client  *http.Client
	wakeup  chan struct{}
	stop    context.CancelFunc
	sending sync.WaitGroup

	mu       sync.Mutex // guards the fields up to the next empty line, and the queued items
	queue    []*item
	read     int64 // every event up to this sequence number is queued or done
	inFlight int
	failures int  // number of consecutive failures
	down     bool // the sink is considered down
	retryAt  time.Time
	log      deliveryLog

	cursor    atomic.Int64 // every event up to this sequence number is done
	saved     int64        // the stored value of cursor; used only by the dispatcher's loop
	delivered atomic.Bool  // an event was delivered since the cursor was stored
	replaying sync.Mutex   // locked during a replay
}

// An item is an event in the queue of a worker.
type item struct {
	*entry
	inFlight bool
	tries    int
	err      string
	next     time.Time // time of the next attempt
	last     time.Time // time of the last attempt
}

func newWorker(d *Dispatcher, sub resource.Subscription, cursor int64, stop context.CancelFunc) *worker {
	w := &worker{
		d: d, sub: sub, headers: deliveryHeaders(d.cfg.Names, sub), client: outbound.Client(d.cfg.Reach),
		wakeup: make(chan struct{}, 1), stop: stop, read: cursor, saved: cursor,
	}
	w.log.failing = sub.Failing
	w.cursor.Store(cursor)
	return w
}

// wake makes the worker look for events to send. It does not block.
func (w *worker) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// run delivers events until ctx ends or the subscription is deleted.
func (w *worker) run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	// Requests have their own context, because they may continue after ctx ends.
	sendCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { time.AfterFunc(shutdownGrace, abort) })()
	defer func() {
		cancel()
		w.sending.Wait()
		abort()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		err := w.fill(ctx)
		if err == nil {
			err = w.expire(ctx)
		}
		if errors.Is(err, fault.NotFound) {
			return // the subscription was deleted
		}
		wait := w.sendReady(ctx, sendCtx)
		if err != nil && ctx.Err() == nil {
			w.d.cfg.Log.WarnContext(ctx, "read events", "subscription", w.sub.UID, "err", err)
			wait = min(wait, time.Second)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-w.wakeup:
		case <-timer.C:
		}
	}
}

// fill reads events into the queue until it is half full.
func (w *worker) fill(ctx context.Context) error {
	for read, room := w.progress(); room; {
		events, scanned, err := w.d.cache.next(ctx, read, queueSize/2)
		if err != nil {
			return err
		}
		if scanned == read {
			return nil
		}
		w.add(events, scanned)
		read, room = w.progress()
	}
	return nil
}

// progress returns the sequence number up to which events were read, and whether the queue has room for more events.
func (w *worker) progress() (read int64, room bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read, len(w.queue) < queueSize/2
}

// backlog returns the number of queued events, and the time of the first one.
func (w *worker) backlog() (n int, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return 0, oldest
	}
	return len(w.queue), w.queue[0].Time
}

// add queues the events that the subscription wants. scanned is the sequence number up to which events were read.
func (w *worker) add(events []*entry, scanned int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if w.sub.Wants(&e.Event) {
			w.queue = append(w.queue, &item{entry: e})
		}
	}
	w.read = scanned
	w.setQueue(w.queue)
}

// setQueue replaces the queue and moves the cursor to its start. The caller holds mu.
func (w *worker) setQueue(queue []*item) {
	w.queue = queue
	w.cursor.Store(w.cursorOf(queue))
}

// cursorOf returns the sequence number before the first event of a queue, or w.read if the queue is empty.
func (w *worker) cursorOf(queue []*item) int64 {
	if len(queue) > 0 {
		return queue[0].Seq - 1
	}
	return w.read
}

// expire gives up events that are older than Config.GiveUp, if they have failed
// or the sink is down. The store keeps them for a replay.
func (w *worker) expire(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	asOf := w.d.cfg.Now()
	if len(w.queue) == 0 || asOf.Sub(w.queue[0].Time) < w.d.cfg.GiveUp {
		return nil // all later events in the queue are younger
	}
	var rest []*item
	var expired []resource.Delivery
	for _, i := range w.queue {
		if i.inFlight || !w.down && i.tries == 0 || asOf.Sub(i.Time) < w.d.cfg.GiveUp {
			rest = append(rest, i)
			continue
		}
		expired = append(expired, resource.Delivery{
			UID: w.sub.UID.NewChild(), Event: i.Event, Attempts: i.tries,
			Error: cmp.Or(i.err, "the sink was down the whole time"), CreateTime: asOf, UpdateTime: i.last,
		})
	}
	if len(expired) == 0 {
		return nil
	}
	if err := w.d.store.GiveUp(ctx, w.sub.UID, w.cursorOf(rest), expired); err != nil {
		return err
	}
	w.d.cfg.Metrics.Deliveries.Add(int64(len(expired)), metric.GivenUp)
	w.d.cfg.Log.WarnContext(ctx, "events were given up", "subscription", w.sub.UID, "events", len(expired))
	w.setQueue(rest)
	w.wake() // reads more events, because the queue has room again
	return nil
}

// sendReady starts to send the events that may be sent now. The requests use sendCtx. It returns the time until another
// event may be sent, at most a minute.
func (w *worker) sendReady(ctx, sendCtx context.Context) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	asOf, wait := w.d.cfg.Now(), time.Minute
	if w.inFlight >= maxInFlight {
		return wait
	}
	if w.down {
		switch {
		case len(w.queue) == 0 || w.inFlight > 0:
		case asOf.Before(w.retryAt):
			wait = min(wait, w.retryAt.Sub(asOf))
		default:
			w.start(ctx, sendCtx, w.queue[0], asOf)
		}
		return wait
	}
	subjects := map[resource.UID]bool{}
	for _, i := range w.queue {
		if w.inFlight >= maxInFlight {
			break
		}
		if subjects[i.Subject] {
			continue // an earlier event about this subject must be sent first
		}
		subjects[i.Subject] = true
		switch {
		case i.inFlight:
		case asOf.Before(i.next):
			wait = min(wait, i.next.Sub(asOf))
		default:
			w.start(ctx, sendCtx, i, asOf)
		}
	}
	return wait
}

func (w *worker) start(ctx, sendCtx context.Context, i *item, now time.Time) {
	i.inFlight, i.last = true, now
	w.inFlight++
	w.sending.Go(func() {
		a, wait, err := w.send(sendCtx, i.entry)
		if w.finish(ctx, i, a, wait, err) {
			w.wake()
		}
	})
}

// finish records the result of the attempt a. If it failed, wait is the time that the sink asked the worker to wait. It
// reports whether the worker has more to do.
func (w *worker) finish(
	ctx context.Context, i *item, a eventdb.Attempt, wait time.Duration, err error,
) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i.inFlight = false
	w.inFlight--
	if err == nil {
		if w.down {
			w.d.cfg.Log.InfoContext(ctx, "a sink is back", "subscription", w.sub.UID)
			for _, queued := range w.queue {
				queued.next = time.Time{}
			}
		}
		w.failures, w.down = 0, false
		w.log.add(a)
		w.setQueue(slices.DeleteFunc(w.queue, func(queued *item) bool { return queued == i }))
		w.delivered.Store(true)
		return len(w.queue) > w.inFlight
	}
	if ctx.Err() != nil {
		return false
	}
	i.tries++
	i.err = err.Error()
	w.failures++
	asOf := w.d.cfg.Now()
	i.next = asOf.Add(max(w.d.backoff(i.tries), wait))
	if w.failures >= downAfter {
		if !w.down {
			w.d.cfg.Log.WarnContext(ctx, "a sink is down", "subscription", w.sub.UID, "err", i.err)
		}
		w.down = true
		w.retryAt = asOf.Add(max(w.d.backoff(w.failures-downAfter+1), wait))
	}
	a.Next = i.next
	if w.down && w.retryAt.After(a.Next) {
		a.Next = w.retryAt
	}
	w.log.add(a)
	return true
}

// send tries once to deliver an event. Lists of deliveries show the text of err to users.
func (w *worker) send(ctx context.Context, e *entry) (a eventdb.Attempt, wait time.Duration, err error) {
	v, err := e.encode()
	if err != nil {
		w.d.cfg.Log.ErrorContext(ctx, "encode an event", "event", e.ID, "err", err)
		err = errors.New("the server could not encode the event")
		a = w.d.attempt(e.Event)
		a.Error = err.Error()
		return a, 0, err
	}
	return w.d.post(ctx, recipient{w.sub, w.headers, w.client}, e.Event, v)
}

// A recipient is the destination of a subscription's events.
type recipient struct {
	sub     resource.Subscription
	headers http.Header
	client  *http.Client
}

// post sends an envelope once, and returns the attempt for the delivery log. If the recipient does not accept the
// event, post also returns an error, and the time that the recipient asks the sender to wait.
func (d *Dispatcher) post(
	ctx context.Context, to recipient, e resource.Event, v envelope,
) (a eventdb.Attempt, wait time.Duration, err error) {
	ctx, span := trace.Begin(ctx, "deliver an event", "")
	a = d.attempt(e)
	start := time.Now()
	defer func() {
		span.End(err)
		outcome := metric.OK
		a.Latency = time.Since(start)
		if err != nil {
			outcome, a.Error = metric.Failed, err.Error()
		}
		d.cfg.Metrics.Deliveries.Add(1, outcome)
	}()
	token, err := d.sign(ctx, to.sub.Group(), v.digest)
	if err != nil {
		d.cfg.Log.ErrorContext(ctx, "sign an event", "event", e.ID, "err", err)
		return a, 0, errors.New("the server could not sign the event")
	}
	r, err := v.request(ctx, to.sub.Sink, to.headers, token)
	if err != nil {
		return a, 0, errors.New("the sink is not a valid address")
	}
	resp, err := to.client.Do(r)
	if err != nil {
		return a, 0, errors.New(outbound.Reason(err))
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	beginning, _ := io.ReadAll(io.LimitReader(resp.Body, responseRead)) // a response without a body is valid
	_, _ = io.CopyN(io.Discard, resp.Body, responseLimit)               // so that the connection can be reused
	if resp.StatusCode/100 == 2 {
		return a, 0, nil
	}
	a.Response = excerpt(beginning, to.sub.Sink)
	err = fmt.Errorf("the sink answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	return a, min(maxRetryAfter, retryAfter(resp.Header, d.cfg.Now())), err
}

// replay sends the deliveries for which a replay was requested, one after the other.
// It returns immediately if another replay is running.
func (w *worker) replay(ctx context.Context) error {
	if !w.replaying.TryLock() {
		return nil
	}
	defer w.replaying.Unlock()
	for {
		deliveries, err := w.d.store.ScheduledReplays(ctx, w.sub.UID, replayChunk)
		if err != nil || len(deliveries) == 0 {
			return err
		}
		for _, d := range deliveries {
			a, _, err := w.send(ctx, w.d.cache.entry(d.Event))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			w.mu.Lock()
			w.log.add(a)
			w.mu.Unlock()
			d.Attempts++
			d.UpdateTime = w.d.cfg.Now()
			if err != nil {
				d.Error = err.Error()
			}
			if err := w.d.store.FinishReplay(ctx, d, err == nil); err != nil {
				return err
			}
		}
	}
}

// backoff returns the wait after a number of failures. It doubles with each failure up to Config.RetryMax, and has
// jitter.
func (d *Dispatcher) backoff(failures int) time.Duration {
	wait := d.cfg.RetryMax
	if shift := failures - 1; shift < 16 {
		wait = min(wait, d.cfg.RetryMin<<shift)
	}
	return wait/2 + rand.N(wait)
}
