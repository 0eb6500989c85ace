package event

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/eventdb"
)

// recent is how many events a feed remembers.
const recent = 2048

// An entry is an event, and its envelope for everybody it is sent to.
type entry struct {
	resource.Event
	seal func() (envelope, error)
}

// A feed is where couriers take events from. It remembers the latest, so that
// they are read and written once for all couriers; those who are behind get
// theirs from the store.
type feed struct {
	store *eventdb.Store
	seal  func(resource.Event) (envelope, error)

	mu     sync.Mutex
	latest []*entry // in order, without a gap
	after  int64    // the number before the first of them
	head   int64    // every event up to this is there
}

func (f *feed) entry(e resource.Event) *entry {
	return &entry{e, sync.OnceValues(func() (envelope, error) { return f.seal(e) })}
}

// add appends events.
func (f *feed) add(all []resource.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range all {
		f.latest = append(f.latest, f.entry(e))
		f.head = e.Seq
	}
	if over := len(f.latest) - recent; over > 0 {
		f.after = f.latest[over-1].Seq
		f.latest = slices.Clone(f.latest[over:])
	}
}

// skip goes on to an event without those before it: who wants them after all
// reads them.
func (f *feed) skip(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest, f.after, f.head = nil, seq, seq
}

// follow returns up to n events that follow the one numbered seq, and the number
// of the last it has looked at.
func (f *feed) follow(ctx context.Context, seq int64, n int) (all []*entry, at int64, _ error) {
	f.mu.Lock()
	head, after, latest := f.head, f.after, f.latest
	f.mu.Unlock()
	if seq >= head {
		return nil, seq, nil
	}
	if seq >= after {
		i, _ := slices.BinarySearchFunc(latest, seq+1, func(e *entry, seq int64) int { return int(e.Seq - seq) })
		all = latest[i:min(i+n, len(latest))]
		if len(all) == 0 {
			return nil, head, nil
		}
		return all, all[len(all)-1].Seq, nil
	}
	got, err := f.store.Events(ctx, seq, n)
	if err != nil {
		return nil, seq, err
	}
	for _, e := range got {
		if e.Seq > head {
			break
		}
		all = append(all, f.entry(e))
	}
	if len(got) < n || len(all) < len(got) {
		return all, head, nil
	}
	return all, all[len(all)-1].Seq, nil
}
