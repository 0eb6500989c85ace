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

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// flushEvery is how often use is written.
const flushEvery = time.Minute

// harvestBatch is how many identities are looked at while checks wait.
const harvestBatch = 256

// capWords is how many words a set of capabilities has.
const capWords = len(resource.Capabilities{})

// usage is which capabilities of each grant of an identity were used since use was written, one grant after the other.
type usage []atomic.Uint64

// A usedGrant is a grant, by its number among those of its identity, and what of it was used.
type usedGrant struct {
	grant int
	caps  resource.Capabilities
}

// A useLog is who has used what since use was written.
type useLog struct {
	by   sync.Map       // the usage of identities
	done []grantlog.Use // of grants that have changed since; guarded by the lock of the index
}

// use notes the use of a grant once nothing is missing. Until then it adds it to those that give a part, which it returns.
func (x *index) use(
	identity resource.UID, h identityGrants, partly []usedGrant, g usedGrant, rest resource.Capabilities,
) []usedGrant {
	if rest != (resource.Capabilities{}) {
		return append(partly, g)
	}
	for _, p := range partly {
		x.note(identity, h, p, 0)
	}
	x.note(identity, h, g, 0)
	return nil
}

// checkSeveral is check for several capabilities, whose use is noted.
func (x *index) checkSeveral(
	identity, target resource.UID, want resource.Capabilities, until uint32,
) resource.Capabilities {
	h := x.identities[identity]
	var partly []usedGrant
	for _, at := range slices.Backward(append(target.Ancestors(), target)) {
		i := first(h.grants, keyOf(at))
		for k := x.pick(h, i, at, want, until); k >= 0; k = x.pick(h, i, at, want, until) {
			rest := want.Without(x.allowed[h.grants[k].role])
			partly = x.use(identity, h, partly, usedGrant{k, want.Without(rest)}, rest)
			if want = rest; want == (resource.Capabilities{}) {
				return want
			}
		}
	}
	return want
}

// pick returns the number of the narrowest grant on a group that gives some of what is wanted, of those from i on, or -1
// if there is none.
func (x *index) pick(h identityGrants, i int, at resource.UID, want resource.Capabilities, until uint32) int {
	best, key := -1, keyOf(at)
	for k := i; k < len(h.grants) && h.grants[k].key == key; k++ {
		g := h.grants[k].grant
		if x.groups.uids[g.group] != at || !x.allowed[g.role].Intersects(want) || !x.counts(g, until) {
			continue
		}
		if best < 0 || x.narrower(g, h.grants[best].grant) {
			best = k
		}
	}
	return best
}

// noteNarrowest notes the use of one capability, by the narrowest of the grants on a group that give it. k is the first
// of these.
func (x *index) noteNarrowest(
	identity resource.UID, h identityGrants, k int, at resource.UID, single, until uint32,
) {
	var want resource.Capabilities
	want[(single-1)>>6] = 1 << ((single - 1) & 63)
	best := x.pick(h, k, at, want, until)
	x.note(identity, h, usedGrant{best, want}, single)
	if best != k {
		atomic.StoreUint32(&h.grants[k].noted, single) // it is looked at first
	}
}

// note records the use of a grant, and of the capability with a number that was the only one, or 0. It runs beside other
// checks, under their lock.
func (x *index) note(identity resource.UID, h identityGrants, g usedGrant, single uint32) {
	x.noteFirst(identity, h, g)
	atomic.StoreUint32(&h.grants[g.grant].noted, single)
}

// codeOf returns a number for a set of one capability, and 0 for others.
func codeOf(caps *resource.Capabilities) (code uint32) {
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
	all, ok := x.uses.by.Load(identity)
	if !ok {
		all, _ = x.uses.by.LoadOrStore(identity, make(usage, len(h.grants)*capWords))
	}
	words := all.(usage)[g.grant*capWords : (g.grant+1)*capWords]
	for i, w := range g.caps {
		if w&^words[i].Load() != 0 {
			words[i].Or(w)
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
	all, ok := x.uses.by.LoadAndDelete(identity)
	if !ok {
		return
	}
	words := all.(usage)
	for i := range h.grants {
		g := h.grants[i].grant
		h.grants[i].noted = 0
		var caps resource.Capabilities
		for w := range caps {
			caps[w] = words[i*capWords+w].Load()
		}
		if caps == (resource.Capabilities{}) {
			continue
		}
		u := grantlog.Use{Capabilities: caps, Grant: iamdb.Grant{Identity: identity, Group: x.groups.uids[g.group], Role: x.roles.uids[g.role]}}
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
	for _, identity := range x.uses.some(-1) {
		x.harvest(identity)
	}
}

// some returns up to n identities that have used something, or all if n is negative.
func (l *useLog) some(n int) (all []resource.UID) {
	l.by.Range(func(identity, _ any) bool {
		all = append(all, identity.(resource.UID))
		return len(all) != n
	})
	return all
}

// RecordUses says whether the checker notes which grants callers use. It is to be called while there are no checks. RunUses writes
// what was noted.
func (c *Checker) RecordUses(on bool) { c.recording = on }

// RunUses writes once a minute which grants were used, until ctx ends, and then once more.
func (c *Checker) RunUses(ctx context.Context) error {
	if _, err := c.past.UsesRecordedSince(ctx); err != nil {
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
	var all []grantlog.Use
	for {
		c.mu.Lock()
		some := c.index.uses.some(harvestBatch)
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
	return c.past.RecordUses(ctx, all, at)
}
