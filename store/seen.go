package store

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/resource"
)

// How many groups and places of repos are remembered at least, if so many have
// been read; of older ones as many again may still be there. A group takes about
// 150 bytes.
const (
	groupsSeen = 1 << 20
	reposSeen  = 1 << 14
)

// seen remembers groups that were read, and where repos are, so that to read one
// again costs no query: that is most of the cost of a small request.
//
// All is in it as it is in the database. Who changes something says so, with
// forget, before the change is known to anybody; what was read from the database
// before that, and arrives after, is not taken. Where other processes write,
// what is in it counts only as long as they wait for this one: see replica.
type seen struct {
	mu      sync.Mutex
	groups  lately[int64, packed]        // by segment
	repos   lately[string, resource.UID] // by the names of their groups and their own, with slashes between
	forgets uint64
}

func newSeen() *seen {
	c := &seen{groups: lately[int64, packed]{size: groupsSeen}, repos: lately[string, resource.UID]{size: reposSeen}}
	c.forgetAll()
	return c
}

// group returns a group, if it is remembered.
func (c *seen) group(uid resource.UID) (resource.Group, bool) {
	c.mu.Lock()
	p, ok := c.groups.get(segment(uid))
	c.mu.Unlock()
	if !ok {
		return resource.Group{}, false
	}
	g := p.group()
	return g, g.UID == uid // a uid with the wrong segments above the last is another
}

// repo returns the repo at a path, if it is remembered.
func (c *seen) repo(path string) (resource.UID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.repos.get(path)
}

// mark is to be handed in with what is about to be read.
func (c *seen) mark() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgets
}

// put remembers groups that were read after mark was given out.
func (c *seen) put(all map[resource.UID]*resource.Group, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark != c.forgets {
		return
	}
	for uid, g := range all {
		c.groups.put(segment(uid), pack(g))
	}
}

// putRepo remembers where a repo was found after mark was given out.
func (c *seen) putRepo(path string, uid resource.UID, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark == c.forgets {
		c.repos.put(path, uid)
	}
}

// forget drops a group or a repo that has changed, or may have: with a name, all
// paths through it change.
func (c *seen) forget(uid resource.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.drop(segment(uid))
	c.repos.dropAll()
}

// forgetAll drops everything.
func (c *seen) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.dropAll()
	c.repos.dropAll()
}

// A lately keeps at least as many values as its size, those that were put in or
// asked for last, and not more than twice as many. It is not safe for
// concurrent use. A list in the order of use would take more room than a group.
type lately[K comparable, V any] struct {
	size       int
	young, old map[K]V // a key is in one of them
}

func (l *lately[K, V]) get(key K) (V, bool) {
	v, ok := l.young[key]
	if ok {
		return v, true
	}
	if v, ok = l.old[key]; ok {
		l.put(key, v)
	}
	return v, ok
}

func (l *lately[K, V]) put(key K, v V) {
	if len(l.young) >= l.size {
		l.young, l.old = map[K]V{}, l.young
	}
	delete(l.old, key)
	l.young[key] = v
}

func (l *lately[K, V]) drop(key K) {
	delete(l.young, key)
	delete(l.old, key)
}

func (l *lately[K, V]) dropAll() { l.young, l.old = map[K]V{}, map[K]V{} }

// A packed group is one piece of memory instead of four, and half of it.
type packed string

const packedHead = 2*8 + 1 + 3*4 // times; verified; the kind and two lengths

func pack(g *resource.Group) packed {
	var head [packedHead]byte
	b := head[:0]
	b = binary.LittleEndian.AppendUint64(b, uint64(ms(g.CreateTime)))
	b = binary.LittleEndian.AppendUint64(b, uint64(ms(g.UpdateTime)))
	if g.Verified {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(g.UID)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(g.Name)))
	return packed(strings.Join([]string{string(b), string(g.UID), g.Name, g.Description}, ""))
}

// group returns what was packed. Its strings are parts of p.
func (p packed) group() resource.Group {
	head := []byte(p[:packedHead])
	number := func(at int) int { return int(binary.LittleEndian.Uint32(head[at:])) }
	moment := func(at int) int64 { return int64(binary.LittleEndian.Uint64(head[at:])) }
	text := string(p[packedHead:])
	uid, name := number(21), number(25)
	return resource.Group{
		UID: resource.UID(text[:uid]), Name: text[uid : uid+name], Description: text[uid+name:],
		Verified: head[16] == 1, Kind: resource.OrgKind(number(17)),
		CreateTime: fromMS(moment(0)), UpdateTime: fromMS(moment(8)),
	}
}
