// Package advisorydb stores advisories, feeds of advisories, and lists of exploited vulnerabilities.
package advisorydb

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the advisories in a database. It is safe for concurrent use.
type Store struct {
	*store.DB

	// GenerationSize is the number of advisories in a generation of a group. Tests make it small.
	GenerationSize int64

	textCache  *textCache                         // cache of the texts that are searched
	advisories *lru.Cache[int64, *cachedAdvisory] // recently used advisories, by key
	Lookups    metric.Cache                       // counts hits and misses of the cache advisories

	// Written receives a value after this process has written to the store, so that a reader need not poll the
	// database. Several writes may send only one value.
	Written chan struct{}
}

// New returns the store of advisories in a database.
func New(db *store.DB) *Store {
	recent, _ := lru.New[int64, *cachedAdvisory](advisoriesCached) // New fails only for sizes below one
	return &Store{DB: db, GenerationSize: generationSize, textCache: &textCache{blocks: map[int64]versionedBlock{}},
		advisories: recent, Written: make(chan struct{}, 1)}
}

// A Tx is a running transaction with methods that change advisories.
type Tx struct {
	*store.Tx
	generationSize int64
}

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	err := s.Write(ctx, func(t *store.Tx) error { return f(Tx{t, s.GenerationSize}) })
	if err == nil {
		select {
		case s.Written <- struct{}{}:
		default: // an earlier value has not been received yet
		}
	}
	return err
}

// FeedList describes the orders of a list of feeds.
var FeedList = feeds.List(page.Order{Field: "uid"})
