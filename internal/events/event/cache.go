package event

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// cacheSize is the number of events in a cache.
const cacheSize = 2048

// An entry is an event with its envelope, which is encoded once for all subscriptions.
type entry struct {
	resource.Event
	encode func() (envelope, error)
}

// A cache contains the latest events, so that each is read and encoded once for all workers. A worker that is further
// behind reads its events from the store. A cache is safe for concurrent use.
type cache struct {
	store  *eventdb.Store
	encode func(resource.Event) (envelope, error)

	mu     sync.Mutex
	latest []*entry // ordered by sequence number, without a gap
	after  int64    // sequence number of the event before the first event in latest
	head   int64    // highest sequence number added so far
}

func (c *cache) entry(e resource.Event) *entry {
	return &entry{e, sync.OnceValues(func() (envelope, error) { return c.encode(e) })}
}

func (c *cache) add(events []resource.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		c.latest = append(c.latest, c.entry(e))
		c.head = e.Seq
	}
	if over := len(c.latest) - cacheSize; over > 0 {
		c.after = c.latest[over-1].Seq
		c.latest = slices.Clone(c.latest[over:])
	}
}

// skip empties the cache and moves its head to seq. Workers can still read skipped events from the store.
func (c *cache) skip(seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest, c.after, c.head = nil, seq, seq
}

// next returns up to n events whose sequence number is greater than seq. It has read all events up to the sequence
// number scanned, so the next call can start there.
func (c *cache) next(ctx context.Context, seq int64, n int) (events []*entry, scanned int64, _ error) {
	c.mu.Lock()
	head, after, latest := c.head, c.after, c.latest
	c.mu.Unlock()
	if seq >= head {
		return nil, seq, nil
	}
	if seq >= after {
		i, _ := slices.BinarySearchFunc(latest, seq+1, func(e *entry, seq int64) int { return int(e.Seq - seq) })
		events = latest[i:min(i+n, len(latest))]
		if len(events) == 0 {
			return nil, head, nil
		}
		return events, events[len(events)-1].Seq, nil
	}
	got, err := outbox.Read(ctx, c.store.DB, seq, n)
	if err != nil {
		return nil, seq, err
	}
	for _, e := range got {
		if e.Seq > head {
			break
		}
		events = append(events, c.entry(e))
	}
	if len(got) < n || len(events) < len(got) {
		return events, head, nil
	}
	return events, events[len(events)-1].Seq, nil
}
