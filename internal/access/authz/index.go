package authz

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An index finds the grants of an identity on a resource and its ancestors. It
// is not safe for concurrent use; the Checker locks it.
//
// It is designed for a million bindings: a grant is five numbers, and the
// capabilities of a role are stored once, so that a change of a role is one write.
type index struct {
	identities map[resource.UID]identityGrants
	groups     interner
	roles      interner
	allowed    []resource.Capabilities // capabilities of the roles, by role number

	uses *useLog

	// clock returns the earliest and the latest possible current time. The current time decides which grants are
	// active.
	clock func() (earliest, latest time.Time)
}

// A grant has the numbers of a group and of a role, and the seconds since 1970 at which the grant starts and ends. It
// repeats the key of the group, because looking up the key for each ancestor would dominate the cost of a check.
type grant struct{ key, group, role, start, end uint32 }

const (
	never     = math.MaxUint32 // end of a grant that does not end
	currently = 0              // value of until in checks that ask only for the present
)

// seconds returns a time as seconds since 1970, less than never.
func seconds(t time.Time) uint32 { return uint32(max(0, min(t.Unix(), never-1))) }

// secondsUntil returns a time as seconds since 1970, or never for the zero time.
func secondsUntil(t time.Time) uint32 {
	if t.IsZero() {
		return never
	}
	return seconds(t)
}

// isActive reports whether a grant is active and does not end before until.
func (x *index) isActive(g grant, until uint32) bool {
	if g.start == 0 && g.end == never {
		return true
	}
	earliest, latest := x.clock()
	return g.start <= seconds(earliest) && seconds(latest) < g.end && g.end >= until
}

// keyOf returns the last eight digits of a UID as a number. Two groups rarely have the same key.
func keyOf(uid resource.UID) uint32 {
	key := uint32(0)
	for i := max(0, len(uid)-8); i < len(uid); i++ {
		c := uid[i]
		key = key<<4 | uint32(c&15+9*(c>>6)) // value of a hexadecimal digit; '0' is 0x30, 'a' is 0x61
	}
	return key
}

// identityGrants are the grants of one identity.
type identityGrants struct {
	depths uint32      // bit d-1 is set if a grant is on a group of depth d
	grants []heldGrant // sorted by key
}

// A heldGrant is a grant of an identity. noted is the number of the capability (see codeOf) whose use was recorded
// last since the last flush, so that a repeated use costs only one comparison. It is accessed atomically, because
// checks write it while other checks read the grant.
type heldGrant struct {
	grant
	noted uint32
}

func newIndex(clock func() (earliest, latest time.Time)) *index {
	return &index{
		uses: &useLog{}, clock: clock, identities: map[resource.UID]identityGrants{},
		groups: newInterner(), roles: newInterner(),
	}
}

// missing returns the capabilities of want that an identity lacks on target. It
// considers the grants on target and its ancestors that are active and do not end
// before until.
func (x *index) missing(
	identity, target resource.UID, want resource.Capabilities, until uint32,
) resource.Capabilities {
	return x.check(identity, target, want, until, false)
}

// check returns the same capabilities as the method missing. If use is true and no capability is missing, it also
// records which grants were used. It considers the grants on the nearest groups first, so that the use counts for the
// narrowest grant.
func (x *index) check(
	identity, target resource.UID, want resource.Capabilities, until uint32, use bool,
) resource.Capabilities {
	var single uint32 // number of the wanted capability if its use is recorded, otherwise 0
	if use {
		if single = codeOf(&want); single == 0 {
			return x.checkSeveral(identity, target, want, until)
		}
	}
	h := x.identities[identity]
	depth := min(target.Depth(), 32)
	for left := h.depths & uint32(1<<depth-1); left != 0; {
		d := bits.Len32(left)
		left &^= 1 << (d - 1)
		group := target.Ancestor(d)
		if len(group) < len(target) && target[len(group)] != '/' {
			continue // target is not a UID
		}
		key := keyOf(group)
		for k := first(h.grants, key); k < len(h.grants) && h.grants[k].key == key; k++ {
			g := &h.grants[k]
			if x.groups.uids[g.group] != group || !x.isActive(g.grant, until) {
				continue
			}
			if want = want.Without(x.allowed[g.role]); want != (resource.Capabilities{}) {
				continue
			}
			if single != 0 && atomic.LoadUint32(&g.noted) != single {
				x.noteNarrowest(identity, h, k, group, single, until)
			}
			return want
		}
	}
	return want
}

// first returns the position of the first grant with a key, or the position at which such a grant would be.
func first(grants []heldGrant, key uint32) int {
	low, high := 0, len(grants)
	for low < high {
		if middle := (low + high) / 2; grants[middle].key < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// active returns the UID of the group and the number of the role of every active grant of an identity.
func (x *index) active(identity resource.UID) iter.Seq2[resource.UID, uint32] {
	return func(yield func(resource.UID, uint32) bool) {
		grants := x.identities[identity].grants
		for i := range grants {
			if g := grants[i].grant; x.isActive(g, currently) && !yield(x.groups.uids[g.group], g.role) {
				return
			}
		}
	}
}

// unexpired returns the grants of an identity that are active or have not begun.
func (x *index) unexpired(identity resource.UID) (found []grant) {
	_, latest := x.clock()
	grants := x.identities[identity].grants
	for i := range grants {
		if g := grants[i].grant; g.end == never || seconds(latest) < g.end {
			found = append(found, g)
		}
	}
	return found
}

// hasRolesOf reports whether the role of every grant is in the index.
func (x *index) hasRolesOf(grants []iamdb.Grant) bool {
	return !slices.ContainsFunc(grants, func(g iamdb.Grant) bool {
		_, ok := x.roles.ids[g.Role]
		return !ok
	})
}

// setGrants replaces all grants of an identity.
func (x *index) setGrants(identity resource.UID, grants []iamdb.Grant) {
	before := x.identities[identity]
	x.collectUses(identity) // must run before the positions of the identity's grants change
	packed := make([]heldGrant, 0, len(grants))
	for _, g := range grants {
		packed = append(packed, heldGrant{grant: x.intern(g)})
	}
	x.set(identity, packed)
	for _, g := range before.grants {
		if x.groups.refs[g.group]--; x.groups.refs[g.group] == 0 {
			x.groups.remove(g.group)
		}
		x.roles.refs[g.role]--
	}
}

// intern returns a grant with the numbers of its group and role, and counts a reference to both.
func (x *index) intern(g iamdb.Grant) grant {
	n := grant{key: keyOf(g.Group), group: x.groups.id(g.Group), role: x.role(g.Role), end: never}
	if g.StartMS != 0 {
		n.start = seconds(time.UnixMilli(g.StartMS + 999))
	}
	if g.ExpireMS != 0 {
		n.end = seconds(time.UnixMilli(g.ExpireMS))
	}
	x.groups.refs[n.group]++
	x.roles.refs[n.role]++
	return n
}

// set sorts grants in place and stores them as the grants of an identity.
func (x *index) set(identity resource.UID, grants []heldGrant) {
	if len(grants) == 0 {
		delete(x.identities, identity)
		return
	}
	slices.SortFunc(grants, func(a, b heldGrant) int { return cmp.Compare(a.key, b.key) })
	h := identityGrants{grants: grants}
	for _, g := range grants {
		h.depths |= 1 << uint(x.groups.uids[g.group].Depth()-1)
	}
	x.identities[identity] = h
}

// role returns the number of a role. A role has no capabilities until setRoles sets them.
func (x *index) role(uid resource.UID) uint32 {
	id := x.roles.id(uid)
	if int(id) == len(x.allowed) {
		x.allowed = append(x.allowed, resource.Capabilities{})
	}
	return id
}

// setRoles replaces the capabilities of every role. A role that is not in roles has no capabilities afterwards.
func (x *index) setRoles(roles map[resource.UID]resource.Capabilities) {
	for uid, id := range x.roles.ids {
		if _, ok := roles[uid]; ok {
			continue
		}
		x.allowed[id] = resource.Capabilities{}
		if x.roles.refs[id] == 0 {
			x.roles.remove(id)
		}
	}
	for uid, caps := range roles {
		x.allowed[x.role(uid)] = caps
	}
}

// add adds a grant to an index that is being loaded. The caller must call sort after the last one.
func (x *index) add(g iamdb.Grant) {
	h := x.identities[g.Identity]
	h.grants = append(h.grants, heldGrant{grant: x.intern(g)})
	x.identities[g.Identity] = h
}

// sort sorts the grants that add has added, and releases memory that append has allocated in excess.
func (x *index) sort() {
	for identity, h := range x.identities {
		x.set(identity, slices.Clone(h.grants))
	}
}

// An interner assigns numbers to UIDs. It reuses the numbers of UIDs that were removed.
type interner struct {
	ids  map[resource.UID]uint32
	uids []resource.UID // UIDs by their numbers
	refs []uint32       // number of grants that refer to a UID, by number of the UID
	free []uint32       // numbers that can be reused
}

func newInterner() interner { return interner{ids: map[resource.UID]uint32{}} }

func (n *interner) id(uid resource.UID) uint32 {
	if id, ok := n.ids[uid]; ok {
		return id
	}
	uid = resource.UID(strings.Clone(string(uid))) // uid may be a slice of a longer string
	if last := len(n.free) - 1; last >= 0 {
		id := n.free[last]
		n.free = n.free[:last]
		n.ids[uid], n.uids[id] = id, uid
		return id
	}
	id := uint32(len(n.uids))
	n.ids[uid] = id
	n.uids, n.refs = append(n.uids, uid), append(n.refs, 0)
	return id
}

func (n *interner) remove(id uint32) {
	delete(n.ids, n.uids[id])
	n.uids[id] = ""
	n.free = append(n.free, id)
}
