package store

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
)

const groupsSeen = 16_384

// seen remembers groups that were read lately, so that to read one again costs
// no query of its own: that is most of the cost of a small request.
//
// A group is in it as it is in the database. Who changes one says so, with
// forget, before the change is known to anybody; a group that was read from the
// database before that, and arrives after, is not taken. Where other processes
// write, they say so in the database, and nothing in it counts before that has
// been looked at: see reads.
type seen struct {
	mu      sync.Mutex
	groups  *lru.Cache[resource.UID, *resource.Group] // which nobody changes
	forgets uint64
}

func newSeen() (*seen, error) {
	groups, err := lru.New[resource.UID, *resource.Group](groupsSeen)
	return &seen{groups: groups}, err
}

// mark is to be handed in with groups that are about to be read.
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
		c.groups.Add(uid, g)
	}
}

// forget drops a group that has changed, or may have.
func (c *seen) forget(uid resource.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Remove(uid)
}

// forgetAll drops everything.
func (c *seen) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Purge()
}
