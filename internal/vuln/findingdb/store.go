// Package findingdb stores what images contain: packages, and which images have them.
// The images themselves, their queue and their numbers are in registrydb.
package findingdb

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about the content of images. It is safe for
// concurrent use.
type Store struct{ *store.DB }

// New returns the store of findings in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a transaction under way, with the changes to what images contain.
type Tx struct{ *store.Tx }

// In returns t with the changes to what images contain.
func In(t *store.Tx) Tx { return Tx{t} }

// Kinds returns what the lists of this package read.
func Kinds() []store.Listing { return []store.Listing{exceptions.Listing(), pullRules.Listing()} }
