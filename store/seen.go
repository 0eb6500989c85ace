package store

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	groupsSeen = 16_384
	reposSeen  = 16_384
)

// seen remembers groups that were read lately, and where repos are, so that to
// read one again costs no query of its own: that is most of the cost of a small
// request.
//
// All is in it as it is in the database. Who changes something says so, with
// forget, before the change is known to anybody; what was read from the database
// before that, and arrives after, is not taken. Where other processes write,
// what is in it counts only as long as they wait for this one: see replica.
type seen struct {
	mu      sync.Mutex
	groups  *lru.Cache[resource.UID, *resource.Group] // which nobody changes
	repos   *lru.Cache[string, resource.UID]          // by the names of their groups and their own, with slashes between
	forgets uint64
}

func newSeen() (*seen, error) {
	groups, err := lru.New[resource.UID, *resource.Group](groupsSeen)
	if err != nil {
		return nil, err
	}
	repos, err := lru.New[string, resource.UID](reposSeen)
	return &seen{groups: groups, repos: repos}, err
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
		c.groups.Add(uid, g)
	}
}

// putRepo remembers where a repo was found after mark was given out.
func (c *seen) putRepo(path string, uid resource.UID, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark == c.forgets {
		c.repos.Add(path, uid)
	}
}

// forget drops a group or a repo that has changed, or may have: with a name, all
// paths through it change.
func (c *seen) forget(uid resource.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Remove(uid)
	c.repos.Purge()
}

// forgetAll drops everything.
func (c *seen) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Purge()
	c.repos.Purge()
}
