package registrydb

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// reposCached is the number of repos that the cache holds. 16,384 take about 3 MB.
const reposCached = 1 << 14

// A repoCache finds a repo by its path, as RepoPath returns it, so that a pull does not have to query the database
// for it.
//
// The cache is cleared whenever the revision of paths increases. Renaming or deleting a group or a repo increases it,
// because a path may then name another repo.
type repoCache struct {
	mu      sync.Mutex
	repos   *lru.Cache[string, resource.UID]
	cleared uint64 // number of calls of clear
}

func newRepoCache() *repoCache {
	repos, _ := lru.New[string, resource.UID](reposCached) // fails only for sizes below one
	return &repoCache{repos: repos}
}

// get returns the repo at a path. If the cache has none, the caller reads the repo from the database and then passes
// cleared to put.
func (c *repoCache) get(path string) (uid resource.UID, ok bool, cleared uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok = c.repos.Get(path)
	return uid, ok, c.cleared
}

// put adds a repo that was read from the database. If the cache was cleared since get returned cleared, put does
// nothing, because the repo may have been read before the change that cleared the cache.
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
