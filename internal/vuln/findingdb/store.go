// Package findingdb stores the packages of images, the advisories that affect them,
// exceptions, pull rules and inventories. Package imagedb stores the images themselves,
// their queue and their numbers.
package findingdb

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes packages, findings, exceptions, pull rules and inventories in a database. It is
// safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of findings in a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a transaction with methods that change the content of images.
type Tx struct{ *store.Tx }

// In returns t with the methods of this package.
func In(t *store.Tx) Tx { return Tx{t} }

// Kinds returns the resources that this package lists.
func Kinds() []store.Listing { return []store.Listing{exceptions.Listing(), pullRules.Listing()} }
