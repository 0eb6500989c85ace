package registrydb

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// reposCached is how many repos the cache holds: 16,384 take about 3 MB.
const reposCached = 1 << 14

// A repoCache finds a repo by its path, the names of its groups and its own with
// slashes between, so that a pull does not have to ask the database.
//
// It has one rule: it is cleared whenever the revision moves. Every change after
// which a path means another repo, that is when a group or a repo is renamed or
// deleted, moves the revision.
type repoCache struct {
	mu      sync.Mutex
	repos   *lru.Cache[string, resource.UID]
	cleared uint64 // how often
}

func newRepoCache() *repoCache {
	repos, _ := lru.New[string, resource.UID](reposCached) // fails for sizes below one only
	return &repoCache{repos: repos}
}

// get returns the repo at a path, and how often the cache had been cleared, which
// put needs to know if the database has to be asked.
func (c *repoCache) get(path string) (uid resource.UID, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok = c.repos.Get(path)
	return uid, ok, c.cleared
}

// put adds a repo that was read from the database, unless the cache was cleared
// since: then it may have been read before the change.
func (c *repoCache) put(path string, uid resource.UID, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.repos.Add(path, uid)
	}
}

func (c *repoCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.repos.Purge()
}
