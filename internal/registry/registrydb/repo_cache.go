package registrydb

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// reposCached is the number of repos that the cache holds. 16,384 take about 3 MB.
const reposCached = 1 << 14

// A repoCache finds a repo by its path, as RepoPath returns it, so that a pull does not have to query the database.
//
// It is cleared whenever the revision moves. Every change after which a path may name another repo moves the
// revision: renaming or deleting a group or a repo.
type repoCache struct {
	mu      sync.Mutex
	repos   *lru.Cache[string, resource.UID]
	cleared uint64 // number of calls of clear
}

func newRepoCache() *repoCache {
	repos, _ := lru.New[string, resource.UID](reposCached) // fails for sizes below one only
	return &repoCache{repos: repos}
}

// get returns the repo at a path. If there is none in the cache, the caller passes cleared to put after it has read
// the repo from the database.
func (c *repoCache) get(path string) (uid resource.UID, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok = c.repos.Get(path)
	return uid, ok, c.cleared
}

// put adds a repo that was read from the database. If the cache was cleared since get returned cleared, put does
// nothing, because the repo may have been read before the change.
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
