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

// flushEvery is the time between two writes of recorded uses.
const flushEvery = time.Minute

// collectBatch is the number of identities whose uses are collected in one step. Checks wait during a step.
const collectBatch = 256

// capWords is the number of words in a set of capabilities.
const capWords = len(resource.Capabilities{})

// usage has capWords words for each grant of an identity: the capabilities that were used since the last flush.
type usage []atomic.Uint64

// A usedGrant is the position of a grant among the grants of its identity, and the capabilities that were used.
type usedGrant struct {
	grant int
	caps  resource.Capabilities
}

// A useLog has the uses since the last flush.
type useLog struct {
	byIdentity sync.Map       // maps a resource.UID to its usage
	collected  []grantlog.Use // uses of grants that have changed since the use; guarded by the lock of the index
}

// use records the use of grants when no capability is missing any longer. As long as rest is not empty, it only
// appends g to partial, the grants that give a part of the wanted capabilities, and returns the result.
func (x *index) use(
	identity resource.UID, h identityGrants, partial []usedGrant, g usedGrant, rest resource.Capabilities,
) []usedGrant {
	if rest != (resource.Capabilities{}) {
		return append(partial, g)
	}
	for _, p := range partial {
		x.note(identity, h, p, 0)
	}
	x.note(identity, h, g, 0)
	return nil
}

// checkSeveral does what check does for several capabilities, and records their use.
func (x *index) checkSeveral(
	identity, target resource.UID, want resource.Capabilities, until uint32,
) resource.Capabilities {
	h := x.identities[identity]
	var partial []usedGrant
	for _, group := range slices.Backward(append(target.Ancestors(), target)) {
		i := first(h.grants, keyOf(group))
		for k := x.pick(h, i, group, want, until); k >= 0; k = x.pick(h, i, group, want, until) {
			rest := want.Without(x.allowed[h.grants[k].role])
			partial = x.use(identity, h, partial, usedGrant{k, want.Without(rest)}, rest)
			if want = rest; want == (resource.Capabilities{}) {
				return want
			}
		}
	}
	return want
}

// pick returns the position of the narrowest grant on a group that gives at least one of the capabilities want, among
// the grants from position i on. It returns -1 if there is none.
func (x *index) pick(h identityGrants, i int, group resource.UID, want resource.Capabilities, until uint32) int {
	best, key := -1, keyOf(group)
	for k := i; k < len(h.grants) && h.grants[k].key == key; k++ {
		g := h.grants[k].grant
		if x.groups.uids[g.group] != group || !x.allowed[g.role].Intersects(want) || !x.isActive(g, until) {
			continue
		}
		if best < 0 || x.narrower(g, h.grants[best].grant) {
			best = k
		}
	}
	return best
}

// noteNarrowest records the use of one capability in the narrowest grant on a group that gives it. k is the position of
// the first such grant. single is the number of the capability: see codeOf.
func (x *index) noteNarrowest(
	identity resource.UID, h identityGrants, k int, group resource.UID, single, until uint32,
) {
	var want resource.Capabilities
	want[(single-1)>>6] = 1 << ((single - 1) & 63)
	best := x.pick(h, k, group, want, until)
	x.note(identity, h, usedGrant{best, want}, single)
	if best != k {
		atomic.StoreUint32(&h.grants[k].noted, single) // the next check of this capability finds grant k first
	}
}

// note records the use of a grant. single is the number of the capability if only one was used, and otherwise 0.
// Several checks can call note at the same time, under the read lock of the index.
func (x *index) note(identity resource.UID, h identityGrants, g usedGrant, single uint32) {
	x.addUse(identity, h, g)
	atomic.StoreUint32(&h.grants[g.grant].noted, single)
}

// codeOf returns a positive number for a set of one capability, and 0 for other sets.
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

// addUse adds the used capabilities of a grant to the usage of an identity.
func (x *index) addUse(identity resource.UID, h identityGrants, g usedGrant) {
	stored, ok := x.uses.byIdentity.Load(identity)
	if !ok {
		stored, _ = x.uses.byIdentity.LoadOrStore(identity, make(usage, len(h.grants)*capWords))
	}
	words := stored.(usage)[g.grant*capWords : (g.grant+1)*capWords]
	for i, w := range g.caps {
		if w&^words[i].Load() != 0 {
			words[i].Or(w)
		}
	}
}

// narrower reports whether g has fewer capabilities than another grant on the same group. If both have the same number,
// role, end and start decide.
func (x *index) narrower(g, than grant) bool {
	return cmp.Or(cmp.Compare(x.allowed[g.role].Len(), x.allowed[than.role].Len()),
		strings.Compare(string(x.roles.uids[g.role]), string(x.roles.uids[than.role])),
		cmp.Compare(g.end, than.end), cmp.Compare(g.start, than.start)) < 0
}

// collectUses moves the uses of an identity to collected. No check may run at the same time.
func (x *index) collectUses(identity resource.UID) {
	h := x.identities[identity]
	stored, ok := x.uses.byIdentity.LoadAndDelete(identity)
	if !ok {
		return
	}
	words := stored.(usage)
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
		u := grantlog.Use{
			Capabilities: caps,
			Grant:        iamdb.Grant{Identity: identity, Group: x.groups.uids[g.group], Role: x.roles.uids[g.role]},
		}
		if g.start != 0 {
			u.StartMS = int64(g.start) * 1000
		}
		if g.end != never {
			u.ExpireMS = int64(g.end) * 1000
		}
		x.uses.collected = append(x.uses.collected, u)
	}
}

// collectAllUses moves the uses of all identities to collected. No check may run at the same time.
func (x *index) collectAllUses() {
	for _, identity := range x.uses.users(-1) {
		x.collectUses(identity)
	}
}

// users returns up to n identities with uses that are not collected, or all such identities if n is negative.
func (l *useLog) users(n int) (identities []resource.UID) {
	l.byIdentity.Range(func(identity, _ any) bool {
		identities = append(identities, identity.(resource.UID))
		return len(identities) != n
	})
	return identities
}

// RecordUses sets whether the checker records which grants callers use. It must be called before the first check.
// RunUses writes the records to the database.
func (c *Checker) RecordUses(on bool) { c.recording = on }

// RunUses calls FlushUses once a minute until ctx ends, and then once more.
func (c *Checker) RunUses(ctx context.Context) error {
	if _, err := c.past.UsesRecordedSince(ctx); err != nil {
		c.log.WarnContext(ctx, "store the time since which uses are recorded", "error", err)
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

// FlushUses writes the uses of grants since the last flush to the database. If that fails, these uses are lost.
func (c *Checker) FlushUses(ctx context.Context) error {
	var uses []grantlog.Use
	for {
		c.mu.Lock()
		batch := c.index.uses.users(collectBatch)
		for _, identity := range batch {
			c.index.collectUses(identity)
		}
		uses = append(uses, c.index.uses.collected...)
		c.index.uses.collected = nil
		c.mu.Unlock()
		if len(batch) < collectBatch {
			break
		}
	}
	_, latest := c.store.Clock()
	return c.past.RecordUses(ctx, uses, latest)
}
