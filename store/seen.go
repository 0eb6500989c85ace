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
// read one again costs no query: that is most of the cost of a small request.
//
// All is in it as it is in the database. Who changes something says so, with
// forget, before the change is known to anybody; what was read from the database
// before that, and arrives after, is not taken.
type seen struct {
	mu      sync.Mutex
	groups  *lru.Cache[resource.UID, resource.Group]
	repos   *lru.Cache[string, resource.UID] // by the names of their groups and their own, with slashes between
	forgets uint64
}

func newSeen() (*seen, error) {
	groups, err := lru.New[resource.UID, resource.Group](groupsSeen)
	if err != nil {
		return nil, err
	}
	repos, err := lru.New[string, resource.UID](reposSeen)
	return &seen{groups: groups, repos: repos}, err
}

// recall returns what is remembered under a key, or else a mark to hand in with
// what is about to be read from the database.
func recall[K comparable, V any](c *seen, from *lru.Cache[K, V], key K) (v V, ok bool, mark uint64) {
	if v, ok = from.Get(key); ok {
		return v, true, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return v, false, c.forgets
}

// remember keeps what was read after mark was given out.
func remember[K comparable, V any](c *seen, in *lru.Cache[K, V], key K, v V, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark == c.forgets {
		in.Add(key, v)
	}
}

// forget drops a group or a repo that has changed, or may have, and where repos
// are: its name may be another now.
func (c *seen) forget(uid resource.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	c.groups.Remove(uid)
	c.repos.Purge()
}
