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
// It is laid out for a million bindings: a grant is five numbers, and what a
// role allows is stored once, so that changing a role is one write.
type index struct {
	identities map[resource.UID]identityGrants
	groups     interner
	roles      interner
	allowed    []resource.Capabilities // by role number

	uses *useLog

	// clock returns the time that decides which grants count: it is between the two.
	clock func() (earliest, latest time.Time)
}

// A grant is a role on a group, by their numbers, and the seconds from which and until which it counts. It repeats the
// key of the group, because looking that up for each ancestor would be most of the cost of a check.
type grant struct{ key, group, role, start, end uint32 }

// never is the end of a grant that has none. now asks for what counts now, however long.
const (
	never = math.MaxUint32
	now   = 0
)

// seconds returns a time in the form that grants have.
func seconds(t time.Time) uint32 { return uint32(max(0, min(t.Unix(), never-1))) }

// secondsUntil returns until when something is asked for: the zero time is for ever.
func secondsUntil(t time.Time) uint32 {
	if t.IsZero() {
		return never
	}
	return seconds(t)
}

// counts reports whether a grant counts now, and does not end before a time.
func (x *index) counts(g grant, until uint32) bool {
	if g.start == 0 && g.end == never {
		return true
	}
	earliest, latest := x.clock()
	return g.start <= seconds(earliest) && seconds(latest) < g.end && g.end >= until
}

// keyOf returns the last eight digits of a UID as a number. Groups rarely share it.
func keyOf(uid resource.UID) uint32 {
	key := uint32(0)
	for i := max(0, len(uid)-8); i < len(uid); i++ {
		c := uid[i]
		key = key<<4 | uint32(c&15+9*(c>>6)) // '0' is 0x30, 'a' is 0x61
	}
	return key
}

// identityGrants are the grants of one identity.
type identityGrants struct {
	depths uint32      // bit d-1 is set if a grant is on a group of depth d
	grants []heldGrant // sorted by key
}

// A heldGrant is a grant of an identity. noted is the capability, plus one, whose use was noted last since use was written,
// so that noting it again costs next to nothing. It is read and written while others read the rest.
type heldGrant struct {
	grant
	noted uint32
}

func newIndex(clock func() (earliest, latest time.Time)) *index {
	return &index{uses: &useLog{}, clock: clock, identities: map[resource.UID]identityGrants{}, groups: newInterner(), roles: newInterner()}
}

// missing returns the capabilities of want that an identity lacks on target,
// given all its grants on target and its ancestors that count now and do not end
// before a time.
func (x *index) missing(
	identity, target resource.UID, want resource.Capabilities, until uint32,
) resource.Capabilities {
	return x.check(identity, target, want, until, false)
}

// check is missing, and notes which grants were used if nothing is missing and use is true. The grants on the nearest
// groups come first, so that the narrowest is the one that was used.
func (x *index) check(
	identity, target resource.UID, want resource.Capabilities, until uint32, use bool,
) resource.Capabilities {
	var single uint32 // the number of the capability, if one is wanted and its use noted
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
		at := target.Ancestor(d)
		if len(at) < len(target) && target[len(at)] != '/' {
			continue // not a UID
		}
		key := keyOf(at)
		for k := first(h.grants, key); k < len(h.grants) && h.grants[k].key == key; k++ {
			g := &h.grants[k]
			if x.groups.uids[g.group] != at || !x.counts(g.grant, until) {
				continue
			}
			if want = want.Without(x.allowed[g.role]); want != (resource.Capabilities{}) {
				continue
			}
			if single != 0 && atomic.LoadUint32(&g.noted) != single {
				x.noteNarrowest(identity, h, k, at, single, until)
			}
			return want
		}
	}
	return want
}

// first returns the number of the first grant with a key, or of the one that would follow it.
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

// all returns every grant of an identity that counts now, as group and role number.
func (x *index) all(identity resource.UID) iter.Seq2[resource.UID, uint32] {
	return func(yield func(resource.UID, uint32) bool) {
		grants := x.identities[identity].grants
		for i := range grants {
			if g := grants[i].grant; x.counts(g, now) && !yield(x.groups.uids[g.group], g.role) {
				return
			}
		}
	}
}

// notOver returns the grants of an identity that are not over: those that count now, and those that will.
func (x *index) notOver(identity resource.UID) (all []grant) {
	_, latest := x.clock()
	grants := x.identities[identity].grants
	for i := range grants {
		if g := grants[i].grant; g.end == never || seconds(latest) < g.end {
			all = append(all, g)
		}
	}
	return all
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
	x.harvest(identity) // while its grants have the numbers that were noted
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

// intern numbers a grant and adds a reference to its group and role.
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

// set stores the grants of an identity, which it sorts in target.
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

// role returns the number of a role. A role that is unknown to setRoles allows nothing.
func (x *index) role(uid resource.UID) uint32 {
	id := x.roles.id(uid)
	if int(id) == len(x.allowed) {
		x.allowed = append(x.allowed, resource.Capabilities{})
	}
	return id
}

// setRoles replaces what every role allows. A role that is not in roles allows nothing from now on.
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

// add adds a grant to an index that is being loaded. After the last one, sort must be called.
func (x *index) add(g iamdb.Grant) {
	h := x.identities[g.Identity]
	h.grants = append(h.grants, heldGrant{grant: x.intern(g)})
	x.identities[g.Identity] = h
}

// sort brings what add has added into order, in as much memory as it needs.
func (x *index) sort() {
	for identity, h := range x.identities {
		x.set(identity, slices.Clone(h.grants))
	}
}

// An interner numbers UIDs. The number of a UID that was removed is used again.
type interner struct {
	ids  map[resource.UID]uint32
	uids []resource.UID // by number
	refs []uint32       // by number: how many grants refer to it
	free []uint32
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
