package registrydb

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/resource"
)

// reposCached is how many repos the cache holds: 16,384 take about 3 MB.
const reposCached = 1 << 14

// A repoCache finds a repo by its path, the names of its groups and its own with
// slashes between, so that a pull does not have to ask the database.
//
// It has one rule: whenever the revision moves, it forgets everything. Every
// change that gives a path another meaning, the renaming or removal of a group
// or a repo, moves the revision, and other replicas wait for that: see replica.
type repoCache struct {
	mu      sync.Mutex
	repos   *lru.Cache[string, resource.UID]
	cleared uint64 // how often
}

func newRepoCache() *repoCache {
	repos, _ := lru.New[string, resource.UID](reposCached) // fails for sizes below one only
	return &repoCache{repos: repos}
}

// get returns the repo at a path. If it has none, it returns what put needs to
// know about the time before the database was asked.
func (c *repoCache) get(path string) (uid resource.UID, ok bool, asked uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok = c.repos.Get(path)
	return uid, ok, c.cleared
}

// put adds a repo that was read from the database, unless the cache was cleared
// since: then it may have been read before the change.
func (c *repoCache) put(path string, uid resource.UID, asked uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked == c.cleared {
		c.repos.Add(path, uid)
	}
}

func (c *repoCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.repos.Purge()
}
