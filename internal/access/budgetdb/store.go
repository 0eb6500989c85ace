// Package budgetdb stores the budgets of groups, and what they count per day.
package budgetdb

import (
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/grouprule"
)

// A Store reads and writes the budgets of a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the Store of a database.
func New(db *store.DB) *Store { return &Store{db} }

// Kinds returns the kinds of resources that this package lists.
func Kinds() []store.Listing { return []store.Listing{budgets.Listing()} }

// List is the list of budgets with the orders that it accepts.
var List = budgets.List(page.Order{Field: "uid"})

// GroupRules returns what happens to the rows of this package's tables when their group is deleted.
func GroupRules() []grouprule.Rule {
	return []grouprule.Rule{
		grouprule.Deletes("budgets", deleteBudget),
		grouprule.Keeps("budget_days", "the counts of a day are deleted some days later"),
	}
}
