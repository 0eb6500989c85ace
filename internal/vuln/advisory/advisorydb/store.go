// Package advisorydb stores advisories, the feeds they come from, and lists of what is
// exploited.
package advisorydb

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about advisories. It is safe for
// concurrent use.
type Store struct {
	*store.DB

	// GenerationSize is how many advisories of a group a generation has. Tests make
	// it small.
	GenerationSize int64

	textCache  *textCache                         // of advisories, as far as they were searched
	advisories *lru.Cache[int64, *cachedAdvisory] // advisories, for lately
	Lookups    metric.Cache                       // in advisories

	// Written has a value when this process has written something since it was last read,
	// so that nobody need ask the database all the time.
	Written chan struct{}
}

// New returns the store of advisories in a database.
func New(db *store.DB) *Store {
	known, _ := lru.New[int64, *cachedAdvisory](advisoriesCached) // fails for sizes below one only
	return &Store{DB: db, GenerationSize: generationSize, textCache: &textCache{all: map[int64]versionedBlock{}},
		advisories: known, Written: make(chan struct{}, 1)}
}

// A Tx is a transaction under way, with the changes to advisories.
type Tx struct {
	*store.Tx
	generationSize int64
}

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	err := s.Write(ctx, func(t *store.Tx) error { return f(Tx{t, s.GenerationSize}) })
	if err == nil {
		select {
		case s.Written <- struct{}{}:
		default: // somebody has yet to read it
		}
	}
	return err
}

// FeedList is how feeds are ordered.
var FeedList = feeds.List(page.Order{Field: "uid"})
