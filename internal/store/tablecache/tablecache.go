// Package tablecache keeps small, often-read tables in memory.
package tablecache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Cache keeps a small, often-read table in memory, such as the rules that
// every pull needs. The copy is valid until the revision increases. Most new
// revisions do not change the table. So for a new revision it compares the
// version of the table, and reads the rows again only if the version differs. It
// is safe for concurrent use.
type Cache[T any] struct {
	db   *store.DB
	row  store.RevisionRow // row in the table revision that counts the changes
	read func(context.Context) (*T, error)

	current atomic.Pointer[T] // nil if the content may be outdated

	mu      sync.Mutex
	last    *tableVersion[T]
	cleared uint64 // number of calls of clear so far
}

// A tableVersion is the content of a table at one version.
type tableVersion[T any] struct {
	history, version int64
	content          *T
}

// New returns a cache of the table that read reads. The value that read
// returns must not be changed afterwards. A write to the table calls
// store.Tx.TableChanged with the same row.
func New[T any](db *store.DB, row store.RevisionRow, read func(context.Context) (*T, error)) *Cache[T] {
	c := &Cache[T]{db: db, row: row, read: read}
	db.OnRevision(c.clear)
	return c
}

func (c *Cache[T]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared++
	c.current.Store(nil)
}

// Get returns the content of the table. It reads the database only if the table
// may have changed. If the table has not changed, Get returns the same pointer as
// before.
func (c *Cache[T]) Get(ctx context.Context) (*T, error) {
	if c.db.Current() { // checked before the cache is read, because the lease may end in between
		if content := c.current.Load(); content != nil {
			return content, nil
		}
	}
	ctx = store.OutsideTransaction(ctx) // other requests must not see changes that are not committed
	c.mu.Lock()
	last, cleared := c.last, c.cleared
	c.mu.Unlock()
	history := c.db.History()
	version, err := c.db.TableVersion(ctx, c.row)
	if err != nil {
		return nil, fmt.Errorf("read the version of %T: %w", *new(T), err)
	}
	if last == nil || last.version != version || last.history != history {
		content, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		last = &tableVersion[T]{history, version, content}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cleared == c.cleared {
		c.last = last
		c.current.Store(last.content)
	}
	return last.content, nil
}
