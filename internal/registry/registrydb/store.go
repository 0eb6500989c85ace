// Package registrydb stores repos, manifests, tags, blobs, uploads, pulls and signers.
package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about the registry. It is safe for
// concurrent use.
type Store struct {
	*store.DB

	repos *repoCache

	manifests *store.ReadBatcher[manifestQuestion, registry.Manifest]

	RepoLookups metric.Cache // in the cache of repos

	// KeepTrash is how long what is deleted can be restored, where the settings of a group do not say it. 0: not at all.
	KeepTrash time.Duration
}

// New returns the store of the registry in a database.
func New(db *store.DB) *Store {
	s := &Store{DB: db, repos: newRepoCache()}
	s.manifests = store.NewReadBatcher(db, s.readManifest, s.readManifests)
	db.OnRevision(s.repos.clear)
	return s
}

// A Tx is a transaction under way, with the changes to the registry.
type Tx struct{ *store.Tx }

// In returns t with the changes to the registry.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns what the lists of this package read.
func Kinds() []store.Listing {
	return []store.Listing{repos.Listing(), tags.Listing(), pulls.Listing(), trash.Listing()}
}

// How lists are ordered.
var (
	RepoList = repos.List(page.Order{Field: "uid"})
	TagList  = tags.List(page.Order{Field: "uid"})
	PullList = pulls.List(page.Order{Field: "create_time", Desc: true})

	TrashList = trash.List(page.Order{Field: "create_time", Desc: true})
)

// Below returns the bounds, both exclusive, of the UIDs of everything below uid: '0' is the byte after '/'.
func Below(uid resource.UID) (from, to string) { return string(uid) + "/", string(uid) + "0" }
