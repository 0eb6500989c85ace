package event

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/eventdb"
	"github.com/holdfast-dev/holdfast/token"
)

// Config is what a Dispatcher is told. Source, Names and Render are needed.
type Config struct {
	Source string // of every event: the address of the API
	Names  Names
	Render func(context.Context, resource.Event) (Body, error)

	Reach    outbound.Config // where sinks may be
	Keep     time.Duration   // how far back the outbox goes; 0 is 90 days
	GiveUp   time.Duration   // how old an event may become that a sink does not take; 0 is a day
	RetryMin time.Duration   // after the first failure; 0 is a second
	RetryMax time.Duration   // 0 is five minutes
	Log      *slog.Logger    // nil: slog's default
	Now      func() time.Time
}

const (
	leaseName  = "events"
	leaseLife  = 15 * time.Second
	leaseRenew = 5 * time.Second

	pollEvery  = 100 * time.Millisecond
	noteEvery  = time.Second // how far subscriptions have come, and what to replay
	pruneEvery = time.Minute

	strollEach = recent / 4 // events after which those of no concern to a courier are passed over

	readChunk  = 1000
	pruneChunk = 5000
)

// A Dispatcher sends events. Of several over one database, one does it for all.
type Dispatcher struct {
	store  *eventdb.Store
	issuer *token.Issuer
	cfg    Config
	id     string

	feed    *feed
	signing chan struct{} // held by those who sign

	couriers map[resource.UID]*stoppable
	posted   map[resource.UID][]*courier // by the group whose events they send
	passed   int                         // events since all couriers were roused
	running  sync.WaitGroup
	pruning  sync.Mutex
}

// A stoppable courier can be stopped.
type stoppable struct {
	*courier
	stop context.CancelFunc
}

// NewDispatcher returns a Dispatcher over db that signs as issuer.
func NewDispatcher(db *store.DB, issuer *token.Issuer, cfg Config) *Dispatcher {
	cfg.Keep = cmp.Or(cfg.Keep, 90*24*time.Hour)
	cfg.GiveUp = cmp.Or(cfg.GiveUp, 24*time.Hour)
	cfg.RetryMin = cmp.Or(cfg.RetryMin, time.Second)
	cfg.RetryMax = cmp.Or(cfg.RetryMax, 5*time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Dispatcher{store: eventdb.New(db), issuer: issuer, cfg: cfg, id: rand.Text(), signing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// Run sends events until ctx ends, whenever it is this one's turn.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		has, err := d.lease(ctx)
		if err == nil && has {
			err = d.lead(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.WarnContext(ctx, "events are not sent", "err", err)
		}
		sleep(ctx, leaseRenew)
	}
	return nil
}

// lease takes the turn, or keeps it. There is nobody to share with where one
// process has the database to itself.
func (d *Dispatcher) lease(ctx context.Context) (bool, error) {
	if !d.store.Replicated() {
		return true, nil
	}
	return d.store.Lease(ctx, leaseName, d.id, leaseLife)
}

// lead sends events for as long as it is this dispatcher's turn.
func (d *Dispatcher) lead(ctx context.Context) error {
	until := time.Now().Add(leaseLife)
	ctx, cancel := context.WithCancel(ctx)
	d.couriers, d.posted = map[resource.UID]*stoppable{}, map[resource.UID][]*courier{}
	defer func() {
		cancel()
		d.running.Wait()
		d.end(context.WithoutCancel(ctx))
	}()
	tail, err := d.begin(ctx)
	if err != nil {
		return err
	}
	var renewed, noted time.Time
	pruned := time.Now()
	for ctx.Err() == nil {
		switch now := time.Now(); {
		case now.Sub(renewed) >= leaseRenew:
			renewed = now
			has, err := d.lease(ctx)
			if err == nil && !has || err != nil && now.After(until) {
				return err
			}
			if err == nil {
				until = now.Add(leaseLife)
			}
		case now.Sub(noted) >= noteEvery:
			noted = now
			d.keep(ctx)
			d.replay(ctx)
		case now.Sub(pruned) >= pruneEvery:
			pruned = now
			d.running.Go(func() { d.prune(ctx) })
		default:
			d.pass(ctx, tail)
		}
	}
	return nil
}

// begin finds where the outbox ends, and starts a courier for every subscription.
// Subscriptions are read once every event up to there is to be seen: those that
// are made later have theirs after it.
func (d *Dispatcher) begin(ctx context.Context) (*store.Tail, error) {
	last, err := d.store.LastEvent(ctx)
	if err != nil {
		return nil, err
	}
	tail, err := d.store.Tail(ctx, last)
	if err != nil {
		return nil, err
	}
	for {
		settled, err := tail.Settle(ctx)
		if err != nil {
			return nil, err
		}
		if settled {
			break
		}
		if sleep(ctx, pollEvery); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, err := d.lease(ctx); err != nil {
			return nil, err
		}
	}
	d.feed = &feed{store: d.store, seal: d.seal, after: last, head: last}
	var after resource.UID
	for {
		sinks, err := d.store.Sinks(ctx, after, readChunk)
		if err != nil {
			return nil, err
		}
		for _, v := range sinks {
			d.serve(ctx, v)
			after = v.UID
		}
		if len(sinks) < readChunk {
			return tail, nil
		}
	}
}

// seal renders an event and writes its envelope.
func (d *Dispatcher) seal(e resource.Event) (envelope, error) {
	body, err := d.cfg.Render(context.Background(), e)
	if err != nil {
		return envelope{}, err
	}
	return seal(d.cfg.Names, d.cfg.Source, e, body)
}

// sign vouches for a delivery. Signatures are most of what a delivery costs, and
// many are due at once: half of the processors stay with the API.
func (d *Dispatcher) sign(ctx context.Context, group resource.UID, digest string) (string, error) {
	select {
	case d.signing <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-d.signing }()
	return d.issuer.MintWebhook(ctx, group, digest)
}

// serve starts a courier.
func (d *Dispatcher) serve(ctx context.Context, v eventdb.Sink) {
	if d.couriers[v.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c := newCourier(d, v.Subscription, v.Cursor)
	d.couriers[v.UID] = &stoppable{c, cancel}
	d.posted[v.Group()] = append(d.posted[v.Group()], c)
	d.running.Go(func() {
		defer cancel()
		c.run(ctx)
	})
}

// pass hands the events that are new to the couriers, and then waits a little,
// unless there are many: on a busy server each look would find one or two.
func (d *Dispatcher) pass(ctx context.Context, tail *store.Tail) {
	n, err := d.look(ctx, tail)
	switch {
	case err != nil && ctx.Err() == nil:
		d.cfg.Log.WarnContext(ctx, "read the outbox", "err", err)
		sleep(ctx, time.Second)
	case n < readChunk:
		sleep(ctx, pollEvery)
	}
}

// look hands the events that are new to the couriers, and reports how many there
// were. Where there is no courier, it reads none of them.
func (d *Dispatcher) look(ctx context.Context, tail *store.Tail) (n int, err error) {
	if len(d.couriers) == 0 {
		n, whole, err := tail.Skip(ctx, readChunk, resource.SubscriptionCreated)
		if n > 0 {
			d.feed.skip(tail.At())
		}
		if err != nil || whole {
			return n, err
		}
	}
	all, err := tail.Next(ctx, readChunk)
	if err != nil {
		return 0, err
	}
	d.feed.add(all)
	for _, e := range all {
		d.follow(ctx, e)
	}
	for _, c := range d.concerned(all) {
		c.rouse()
	}
	return len(all), nil
}

// concerned returns the couriers that events are for. The others are not woken
// for nothing: they pass over what is not for them once in a while, before the
// feed forgets it.
func (d *Dispatcher) concerned(all []resource.Event) (who []*courier) {
	if d.passed += len(all); d.passed >= strollEach {
		d.passed = 0
		for _, c := range d.couriers {
			who = append(who, c.courier)
		}
		return who
	}
	found := map[*courier]bool{}
	for i := range all {
		for _, uid := range [...]resource.UID{all[i].Group, all[i].Subject} {
			for ; uid != ""; uid = uid.Parent() {
				for _, c := range d.posted[uid] {
					if !found[c] {
						found[c] = true
						who = append(who, c)
					}
				}
			}
		}
	}
	return who
}

// dismiss forgets where a courier was posted.
func (d *Dispatcher) dismiss(c *courier) {
	group := c.sub.Group()
	d.posted[group] = slices.DeleteFunc(d.posted[group], func(other *courier) bool { return other == c })
	if len(d.posted[group]) == 0 {
		delete(d.posted, group)
	}
}

// follow starts and stops couriers as subscriptions come and go.
func (d *Dispatcher) follow(ctx context.Context, e resource.Event) {
	switch e.Type {
	case resource.SubscriptionCreated:
		v, err := d.store.Sink(ctx, e.Subject)
		if err == nil {
			d.serve(ctx, v)
		}
	case resource.SubscriptionDeleted:
		if c := d.couriers[e.Subject]; c != nil {
			c.stop()
			delete(d.couriers, e.Subject)
			d.dismiss(c.courier)
		}
	}
}

// keep notes how far the couriers have come.
func (d *Dispatcher) keep(ctx context.Context) {
	come := map[resource.UID]int64{}
	for uid, c := range d.couriers {
		if at := c.come.Load(); c.done.Swap(false) || at-c.noted > lazily {
			come[uid] = at
		}
	}
	if len(come) == 0 {
		return
	}
	if err := d.store.Advance(ctx, come); err != nil {
		for uid := range come {
			d.couriers[uid].done.Store(true)
		}
		d.cfg.Log.WarnContext(ctx, "note what was sent", "err", err)
		return
	}
	for uid, at := range come {
		d.couriers[uid].noted = at
	}
}

// replay has the couriers send again what was asked for.
func (d *Dispatcher) replay(ctx context.Context) {
	uids, err := d.store.Replaying(ctx)
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "look for replays", "err", err)
	}
	for _, uid := range uids {
		c := d.couriers[uid]
		if c == nil {
			continue
		}
		d.running.Go(func() {
			if err := c.replay(ctx); err != nil && ctx.Err() == nil {
				d.cfg.Log.WarnContext(ctx, "replay", "subscription", uid, "err", err)
			}
		})
	}
}

// prune lets the outbox forget, a little at a time. It returns at once if that is
// being done.
func (d *Dispatcher) prune(ctx context.Context) {
	if !d.pruning.TryLock() {
		return
	}
	defer d.pruning.Unlock()
	before := d.cfg.Now().Add(-d.cfg.Keep)
	for _, f := range []func(context.Context, time.Time, int) (int, error){d.store.PruneEvents, d.store.PruneDeliveries} {
		for {
			n, err := f(ctx, before, pruneChunk)
			if err != nil && ctx.Err() == nil {
				d.cfg.Log.WarnContext(ctx, "forget old events", "err", err)
			}
			if err != nil || n < pruneChunk {
				break
			}
			sleep(ctx, pollEvery)
		}
	}
}

// end notes how far the couriers have come, and gives the turn up.
func (d *Dispatcher) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	d.keep(ctx)
	if d.store.Replicated() {
		if err := d.store.EndLease(ctx, leaseName, d.id); err != nil {
			d.cfg.Log.WarnContext(ctx, "give up the turn to send events", "err", err)
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
