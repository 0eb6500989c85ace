package authz

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

// flushEvery is how often use is written.
const flushEvery = time.Minute

// harvestBatch is how many identities are looked at while checks wait.
const harvestBatch = 256

// capWords is how many words a set of capabilities has.
const capWords = len(resource.Capabilities{})

// usage is which grants of an identity were used since the last flush. What is noted already costs a check two loads.
type usage struct {
	bits   atomic.Pointer[[]atomic.Uint64] // the capabilities of each grant, one after the other; nil if none was used
	queued atomic.Bool                     // the identity is in the log
}

// A usedGrant is a grant, by its number among those of its identity, and what of it was used.
type usedGrant struct {
	grant int
	caps  resource.Capabilities
}

// A useLog knows who has used something since the last flush.
type useLog struct {
	mu    sync.Mutex
	dirty []resource.UID // identities whose usage has something
	done  []iamdb.Use    // of grants that have changed since; guarded by the lock of the index
}

// use notes the use of a grant once nothing is missing. Until then it adds it to those that give a part, which it returns.
func (x *index) use(
	identity resource.UID, h identityGrants, partly []usedGrant, g usedGrant, rest resource.Capabilities,
) []usedGrant {
	if rest != (resource.Capabilities{}) {
		return append(partly, g)
	}
	for _, p := range partly {
		x.note(identity, h, p)
	}
	x.note(identity, h, g)
	return nil
}

// note records the use of a grant. It runs beside other checks, under their lock.
func (x *index) note(identity resource.UID, h identityGrants, g usedGrant) {
	code, noted := codeOf(g.caps), &h.grants[g.grant].noted
	if code == 0 || atomic.LoadUint32(noted) != code {
		x.noteFirst(identity, h, g)
		atomic.StoreUint32(noted, code)
	}
}

// codeOf returns a number for a set of one capability, and 0 for others.
func codeOf(caps resource.Capabilities) (code uint32) {
	for i, w := range caps {
		if w == 0 {
			continue
		}
		if code != 0 || w&(w-1) != 0 {
			return 0
		}
		code = uint32(i*64+bits.TrailingZeros64(w)) + 1
	}
	return code
}

// noteFirst records a use that may be the first since use was written.
func (x *index) noteFirst(identity resource.UID, h identityGrants, g usedGrant) {
	all := h.used.bits.Load()
	if all == nil {
		fresh := make([]atomic.Uint64, len(h.grants)*capWords)
		if h.used.bits.CompareAndSwap(nil, &fresh) {
			all = &fresh
		} else {
			all = h.used.bits.Load()
		}
	}
	words := (*all)[g.grant*capWords : (g.grant+1)*capWords]
	for i, w := range g.caps {
		if w&^words[i].Load() == 0 {
			continue
		}
		words[i].Or(w)
		if h.used.queued.CompareAndSwap(false, true) {
			x.uses.mu.Lock()
			x.uses.dirty = append(x.uses.dirty, identity)
			x.uses.mu.Unlock()
		}
	}
}

// narrower reports whether one of two grants on a group allows less than the other, or comes first if both allow as much.
func (x *index) narrower(g, than grant) bool {
	return cmp.Or(cmp.Compare(x.allowed[g.role].Len(), x.allowed[than.role].Len()),
		strings.Compare(string(x.roles.uids[g.role]), string(x.roles.uids[than.role])),
		cmp.Compare(g.end, than.end), cmp.Compare(g.start, than.start)) < 0
}

// harvest moves what an identity has used to done. No check may run.
func (x *index) harvest(identity resource.UID) {
	h := x.identities[identity]
	if h.used == nil {
		return
	}
	h.used.queued.Store(false)
	all := h.used.bits.Swap(nil)
	if all == nil {
		return
	}
	for i := range h.grants {
		g := h.grants[i].grant
		h.grants[i].noted = 0
		var caps resource.Capabilities
		for w := range caps {
			caps[w] = (*all)[i*capWords+w].Load()
		}
		if caps == (resource.Capabilities{}) {
			continue
		}
		u := iamdb.Use{Capabilities: caps, Grant: iamdb.Grant{Identity: identity, Group: x.groups.uids[g.group], Role: x.roles.uids[g.role]}}
		if g.start != 0 {
			u.StartMS = int64(g.start) * 1000
		}
		if g.end != never {
			u.ExpireMS = int64(g.end) * 1000
		}
		x.uses.done = append(x.uses.done, u)
	}
}

// harvestAll moves what everybody has used to done. No check may run.
func (x *index) harvestAll() {
	for _, identity := range x.uses.take(-1) {
		x.harvest(identity)
	}
}

// take returns up to n identities that have used something, or all, and forgets them.
func (l *useLog) take(n int) []resource.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > len(l.dirty) {
		n = len(l.dirty)
	}
	taken := slices.Clone(l.dirty[:n])
	l.dirty = slices.Delete(l.dirty, 0, n)
	return taken
}

// RecordUses says whether the checker notes which grants callers use. It is to be called while there are no checks. RunUses writes
// what was noted.
func (c *Checker) RecordUses(on bool) { c.recording = on }

// RunUses writes once a minute which grants were used, until ctx ends, and then once more.
func (c *Checker) RunUses(ctx context.Context) error {
	if _, err := c.store.UsesRecordedSince(ctx); err != nil {
		c.log.WarnContext(ctx, "note since when use is recorded", "error", err)
	}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
		if err := c.FlushUses(bounded); err != nil {
			c.log.WarnContext(ctx, "record which role bindings are used", "error", err)
		}
		cancel()
	}
	return nil
}

// FlushUses writes which grants were used since the last time. What cannot be written is lost.
func (c *Checker) FlushUses(ctx context.Context) error {
	var all []iamdb.Use
	for {
		c.mu.Lock()
		some := c.index.uses.take(harvestBatch)
		for _, identity := range some {
			c.index.harvest(identity)
		}
		all = append(all, c.index.uses.done...)
		c.index.uses.done = nil
		c.mu.Unlock()
		if len(some) < harvestBatch {
			break
		}
	}
	_, at := c.store.Clock()
	return c.store.RecordUses(ctx, all, at)
}
