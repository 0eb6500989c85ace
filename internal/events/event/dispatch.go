package event

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// Config configures a Dispatcher. Source, Names and Render are required.
type Config struct {
	Source string // the CloudEvents source of every event: the address of the API
	Names  Names
	Render func(context.Context, resource.Event) (Body, error)

	Reach     outbound.Config // allowed addresses of sinks
	Retention time.Duration   // time after which events are deleted from the outbox; 0 means 90 days
	GiveUp    time.Duration   // age at which an undelivered event is given up; 0 means a day
	RetryMin  time.Duration   // wait after the first failure; 0 means a second
	RetryMax  time.Duration   // longest wait after a failure; 0 means five minutes
	Alarm     time.Duration   // time of failures after which a failing sink is reported; 0 means an hour
	Metrics   metric.Metrics
	Log       *slog.Logger // if nil, slog's default logger
	Now       func() time.Time

	// Failing is called in the transaction that reports a failing sink, if it is not nil.
	Failing func(context.Context, *store.Tx, resource.Subscription) error
}

const (
	leaseName  = "events"
	leaseLife  = 15 * time.Second
	leaseRenew = 5 * time.Second

	pollEvery  = 100 * time.Millisecond
	saveEvery  = time.Second // interval for saving cursors and logs of deliveries, and looking for replays
	pruneEvery = time.Minute

	wakeAllEvery = cacheSize / 4 // number of events after which every worker is woken, so that its cursor moves

	readChunk  = 1000
	pruneChunk = 5000
)

// A Dispatcher delivers events to subscriptions. If several run over one
// database, only the dispatcher with the lease delivers.
type Dispatcher struct {
	store  *eventdb.Store
	issuer *token.Issuer
	cfg    Config
	id     string

	cache   *cache
	signing chan struct{} // a semaphore: one value per running signature
	history int64         // result of store.DB.History when the cursors were read

	workers      map[resource.UID]*worker   // workers by the UID of their subscription
	byGroup      map[resource.UID][]*worker // workers by the group that contains their subscription
	sinceWakeAll int                        // number of events since all workers were woken
	running      sync.WaitGroup
	pruning      sync.Mutex
	backlog      atomic.Pointer[Backlog]
}

// A Backlog summarizes the events that a dispatcher has queued for delivery.
type Backlog struct {
	Waiting int       // number of queued events; each queue has a limited size
	Oldest  time.Time // time of the oldest queued event; zero if there is none
}

// Backlog returns the backlog, which is at most a second old. It is empty unless this dispatcher holds the lease.
func (d *Dispatcher) Backlog() Backlog {
	if b := d.backlog.Load(); b != nil {
		return *b
	}
	return Backlog{}
}

// noteBacklog computes the backlog from the queues of the workers.
func (d *Dispatcher) noteBacklog() {
	var b Backlog
	for _, w := range d.workers {
		n, oldest := w.backlog()
		b.Waiting += n
		if n > 0 && (b.Oldest.IsZero() || oldest.Before(b.Oldest)) {
			b.Oldest = oldest
		}
	}
	d.backlog.Store(&b)
}

// NewDispatcher returns a Dispatcher over db that signs with issuer.
func NewDispatcher(db *store.DB, issuer *token.Issuer, cfg Config) *Dispatcher {
	cfg.Retention = cmp.Or(cfg.Retention, 90*24*time.Hour)
	cfg.GiveUp = cmp.Or(cfg.GiveUp, 24*time.Hour)
	cfg.RetryMin = cmp.Or(cfg.RetryMin, time.Second)
	cfg.RetryMax = cmp.Or(cfg.RetryMax, 5*time.Minute)
	cfg.Alarm = cmp.Or(cfg.Alarm, time.Hour)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	// Signing is most of the cost of a delivery, and many deliveries run in parallel. Limiting it to half of the
	// processors leaves the other half to the API.
	signing := make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	return &Dispatcher{store: eventdb.New(db), issuer: issuer, cfg: cfg, id: rand.Text(), signing: signing}
}

// Run delivers events while it holds the lease, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		has, err := d.lease(ctx)
		if err == nil && has {
			err = d.lead(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.WarnContext(ctx, "events are not being delivered", "err", err)
		}
		sleep(ctx, leaseRenew)
	}
	return nil
}

// lease acquires or renews the lease, and reports whether this dispatcher holds it. It always reports true if no other
// process can use the database.
func (d *Dispatcher) lease(ctx context.Context) (bool, error) {
	if !d.store.Replicated() {
		return true, nil
	}
	return lease.Acquire(ctx, d.store.DB, leaseName, d.id, leaseLife)
}

// lead delivers events until the lease is lost, the history of the database changes (see store.DB.History), or ctx
// ends.
func (d *Dispatcher) lead(ctx context.Context) error {
	until := time.Now().Add(leaseLife)
	d.history = d.store.History()
	ctx, cancel := context.WithCancel(ctx)
	d.workers, d.byGroup = map[resource.UID]*worker{}, map[resource.UID][]*worker{}
	defer func() {
		cancel()
		d.running.Wait()
		d.backlog.Store(nil)
		d.release(context.WithoutCancel(ctx))
	}()
	tail, err := d.begin(ctx)
	if err != nil {
		return err
	}
	var renewed, saved time.Time
	pruned := time.Now()
	for ctx.Err() == nil {
		switch asOf := time.Now(); {
		case d.store.History() != d.history: // after a restore, for example, events have other sequence numbers
			return nil
		case asOf.Sub(renewed) >= leaseRenew:
			renewed = asOf
			has, err := d.lease(ctx)
			if err == nil && !has || err != nil && asOf.After(until) {
				return err
			}
			if err == nil {
				until = asOf.Add(leaseLife)
			}
		case asOf.Sub(saved) >= saveEvery:
			saved = asOf
			d.noteBacklog()
			d.saveCursors(ctx)
			d.saveLogs(ctx)
			d.replay(ctx)
		case asOf.Sub(pruned) >= pruneEvery:
			pruned = asOf
			d.running.Go(func() { d.prune(ctx) })
		default:
			d.poll(ctx, tail)
		}
	}
	return nil
}

// begin starts a worker for every subscription, and returns a tail that starts at the end of the outbox. It first waits
// until every event before the tail is visible, and then reads the subscriptions. If a subscription is created later,
// the tail returns the event about its creation.
func (d *Dispatcher) begin(ctx context.Context) (*outbox.Tail, error) {
	tail, err := tailAtEnd(ctx, d.store, func() error { _, err := d.lease(ctx); return err })
	if err != nil {
		return nil, err
	}
	d.cache = &cache{store: d.store, encode: d.encode, after: tail.At(), head: tail.At()}
	var after resource.UID
	for {
		sinks, err := d.store.Sinks(ctx, after, readChunk)
		if err != nil {
			return nil, err
		}
		for _, v := range sinks {
			d.startWorker(ctx, v)
			after = v.UID
		}
		if len(sinks) < readChunk {
			return tail, nil
		}
	}
}

// encode renders an event and encodes its envelope.
func (d *Dispatcher) encode(e resource.Event) (envelope, error) {
	body, err := d.cfg.Render(context.Background(), e)
	if err != nil {
		return envelope{}, err
	}
	return encode(d.cfg.Names, d.cfg.Source, e, body)
}

// sign returns the token of a delivery.
func (d *Dispatcher) sign(ctx context.Context, group resource.UID, digest string) (string, error) {
	select {
	case d.signing <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-d.signing }()
	return d.issuer.MintWebhook(ctx, group, digest)
}

func (d *Dispatcher) startWorker(ctx context.Context, v eventdb.Sink) {
	if d.workers[v.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := newWorker(d, v.Subscription, v.Cursor, cancel)
	w.log.reported = v.Reported
	d.workers[v.UID] = w
	d.byGroup[v.Group()] = append(d.byGroup[v.Group()], w)
	d.running.Go(func() {
		defer cancel()
		w.run(ctx)
	})
}

func (d *Dispatcher) stopWorker(uid resource.UID) {
	w := d.workers[uid]
	if w == nil {
		return
	}
	w.stop()
	delete(d.workers, uid)
	group := w.sub.Group()
	d.byGroup[group] = slices.DeleteFunc(d.byGroup[group], func(other *worker) bool { return other == w })
	if len(d.byGroup[group]) == 0 {
		delete(d.byGroup, group)
	}
}

// poll passes new events to the workers. It then sleeps unless the chunk was full,
// because on a busy server every read would otherwise return one or two events.
func (d *Dispatcher) poll(ctx context.Context, tail *outbox.Tail) {
	n, err := d.readNew(ctx, tail)
	switch {
	case err != nil && ctx.Err() == nil:
		d.cfg.Log.WarnContext(ctx, "read the outbox", "err", err)
		sleep(ctx, time.Second)
	case n < readChunk:
		sleep(ctx, pollEvery)
	}
}

// readNew passes new events to the workers, and returns their number. If there is no worker, it skips events without
// reading them.
func (d *Dispatcher) readNew(ctx context.Context, tail *outbox.Tail) (n int, err error) {
	if len(d.workers) == 0 {
		n, skippedAll, err := tail.Skip(ctx, readChunk, resource.SubscriptionCreated)
		if n > 0 {
			d.cache.skip(tail.At())
		}
		if err != nil || skippedAll {
			return n, err
		}
	}
	events, err := tail.Next(ctx, readChunk)
	if err != nil {
		return 0, err
	}
	d.cache.add(events)
	for _, e := range events {
		switch e.Type {
		case resource.SubscriptionCreated:
			if v, err := d.store.Sink(ctx, e.Subject); err == nil {
				d.startWorker(ctx, v)
			}
		case resource.SubscriptionDeleted:
			d.stopWorker(e.Subject)
		}
	}
	for _, w := range d.interested(events) {
		w.wake()
	}
	return len(events), nil
}

// interested returns the workers whose subscriptions may want one of the events. After every wakeAllEvery events it
// returns all workers, so that the cursors of idle workers advance before the cache evicts the events.
func (d *Dispatcher) interested(events []resource.Event) (workers []*worker) {
	if d.sinceWakeAll += len(events); d.sinceWakeAll >= wakeAllEvery {
		d.sinceWakeAll = 0
		return slices.Collect(maps.Values(d.workers))
	}
	added := map[*worker]bool{}
	for i := range events {
		for _, uid := range [...]resource.UID{events[i].Group, events[i].Subject} {
			for ; uid != ""; uid = uid.Parent() {
				for _, w := range d.byGroup[uid] {
					if !added[w] {
						added[w] = true
						workers = append(workers, w)
					}
				}
			}
		}
	}
	return workers
}

// saveCursors stores the cursors of workers that have delivered an event. It also stores a cursor that is more than
// cursorLag ahead of its stored value.
func (d *Dispatcher) saveCursors(ctx context.Context) {
	cursors := map[resource.UID]int64{}
	for uid, w := range d.workers {
		if cursor := w.cursor.Load(); w.delivered.Swap(false) || cursor-w.saved > cursorLag {
			cursors[uid] = cursor
		}
	}
	if len(cursors) == 0 {
		return
	}
	if err := d.store.SaveCursors(ctx, d.history, cursors); err != nil {
		for uid := range cursors {
			d.workers[uid].delivered.Store(true)
		}
		d.cfg.Log.WarnContext(ctx, "save the cursors of subscriptions", "err", err)
		return
	}
	for uid, cursor := range cursors {
		d.workers[uid].saved = cursor
	}
}

// replay starts the requested replays.
func (d *Dispatcher) replay(ctx context.Context) {
	uids, err := d.store.SubscriptionsToReplay(ctx)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "look for replays", "err", err)
	}
	for _, uid := range uids {
		w := d.workers[uid]
		if w == nil {
			continue
		}
		d.running.Go(func() {
			if err := w.replay(ctx); err != nil && ctx.Err() == nil {
				d.cfg.Log.WarnContext(ctx, "replay", "subscription", uid, "err", err)
			}
		})
	}
}

// prune deletes events and deliveries older than Config.Retention, in chunks. It
// returns immediately if another prune is running.
func (d *Dispatcher) prune(ctx context.Context) {
	if !d.pruning.TryLock() {
		return
	}
	defer d.pruning.Unlock()
	before := d.cfg.Now().Add(-d.cfg.Retention)
	pruneEvents := func(ctx context.Context, before time.Time, n int) (int, error) {
		return outbox.Prune(ctx, d.store.DB, before, n)
	}
	for _, f := range []func(context.Context, time.Time, int) (int, error){pruneEvents, d.store.PruneDeliveries} {
		for {
			n, err := f(ctx, before, pruneChunk)
			if err != nil && ctx.Err() == nil {
				d.cfg.Log.WarnContext(ctx, "delete old events", "err", err)
			}
			if err != nil || n < pruneChunk {
				break
			}
			sleep(ctx, pollEvery)
		}
	}
}

// release stores the cursors and ends the lease.
func (d *Dispatcher) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	d.saveCursors(ctx)
	d.saveLogs(ctx)
	if d.store.Replicated() {
		if err := lease.Release(ctx, d.store.DB, leaseName, d.id); err != nil {
			d.cfg.Log.WarnContext(ctx, "release the lease on events", "err", err)
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
