// Package grantlog stores the past of grants: which role bindings were in force at a time, what changed between two
// times, and when each binding was last used.
package grantlog

import (
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the past of grants in a database. It is safe for concurrent use.
type Store struct {
	*store.DB
	iam *iamdb.Store
}

// New returns the Store of a database.
func New(db *store.DB) *Store { return &Store{DB: db, iam: iamdb.New(db)} }

// The orders in which lists of the past can be sorted.
var (
	byUID = page.Order{Field: "uid"}

	BindingList = page.List{Kind: "past access", Fields: bindings.List(byUID).Fields, Default: byUID}
	GroupList   = page.List{Kind: "past groups", Fields: []string{"uid"}, Default: byUID}
	DiffList    = page.List{Kind: "access diff", Fields: []string{"time"}, Default: page.Order{Field: "time"}}
)

// distinct returns UIDs as strings, sorted and without duplicates.
func distinct(uids []resource.UID) []string {
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = string(uid)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
