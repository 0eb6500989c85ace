// Package registrydb stores repos, manifests, tags, blobs, uploads, records of pulls, and the trash.
package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/readbatch"
)

// A Store reads and writes the tables of the registry. It is safe for concurrent use.
type Store struct {
	*store.DB

	repos *repoCache

	manifests *readbatch.Batcher[manifestQuery, registry.Manifest]

	RepoLookups metric.Cache // hits and misses of the cache of repos

	// KeepTrash is the time for which deleted content can be restored if the settings of its group do not set one. If
	// it is 0, content of such groups cannot be restored.
	KeepTrash time.Duration
}

// New returns the store of the registry in a database.
func New(db *store.DB) *Store {
	s := &Store{DB: db, repos: newRepoCache()}
	s.manifests = readbatch.New(db, s.readManifest, s.readManifests)
	db.OnRevision(s.repos.clear)
	return s
}

// A Tx is an open transaction with methods that change the registry.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the listings of this package.
func Kinds() []store.Listing {
	return []store.Listing{repos.Listing(), tags.Listing(), pulls.Listing(), trash.Listing()}
}

// The lists of this package, each with its default order.
var (
	RepoList = repos.List(page.Order{Field: "uid"})
	TagList  = tags.List(page.Order{Field: "uid"})
	PullList = pulls.List(page.Order{Field: "create_time", Desc: true})

	TrashList = trash.List(page.Order{Field: "create_time", Desc: true})
)

// Below returns the bounds, both exclusive, of the UIDs of everything below uid: '0' is the byte after '/'.
func Below(uid resource.UID) (from, to string) { return string(uid) + "/", string(uid) + "0" }
