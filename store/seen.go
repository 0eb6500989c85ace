package store

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
)

const groupsSeen = 16_384

// seen remembers groups that were read lately, so that to read one again costs
// no query: that is most of the cost of a small request.
//
// A group is in it as it is in the database. Who changes one says so, with
// forget, before the change is known to anybody; a group that was read from the
// database before that, and arrives after, is not taken.
type seen struct {
	mu      sync.Mutex
	groups  *lru.Cache[resource.UID, resource.Group]
	forgets uint64
}

func newSeen() (*seen, error) {
	groups, err := lru.New[resource.UID, resource.Group](groupsSeen)
	return &seen{groups: groups}, err
}

// get returns a group, or else a mark to hand in with the one that is about to
// be read from the database.
func (c *seen) get(uid resource.UID) (g resource.Group, ok bool, mark uint64) {
	if g, ok = c.groups.Get(uid); ok {
		return g, true, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return g, false, c.forgets
}

// put remembers a group that was read after mark was given out.
func (c *seen) put(g resource.Group, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark == c.forgets {
		c.groups.Add(g.UID, g)
	}
}

// forget drops a group that has changed, or may have.
func (c *seen) forget(uid resource.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Remove(uid)
}
