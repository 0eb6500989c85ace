// Package iamdb stores groups, identities, their sessions, roles, bindings, identity
// providers, invites and what else decides who may do what.
package iamdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about access control. It is safe for
// concurrent use.
type Store struct{ *store.DB }

// New returns the store of access control in a database.
func New(db *store.DB) *Store {
	return &Store{DB: db}
}

// A Tx is a transaction under way, with the changes to access control.
type Tx struct{ *store.Tx }

// In returns t with the changes to access control.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns what the lists of this package read.
func Kinds() []store.Listing {
	return []store.Listing{
		groups.Listing(), identities.Listing(), roles.Listing(), bindings.Listing(), providers.Listing(),
		associations.Listing(), invites.Listing(), mappings.Listing(), budgets.Listing(),
		accessRules.Listing(), accessRequests.Listing(),
	}
}

// How lists are ordered.
var (
	byUID  = page.Order{Field: "uid"}
	newest = page.Order{Field: "create_time", Desc: true}

	GroupList       = groups.List(byUID)
	IdentityList    = identities.List(byUID)
	RoleList        = roles.List(byUID)
	BindingList     = bareBindings.List(byUID)
	ProviderList    = providers.List(byUID)
	BudgetList      = budgets.List(page.Order{Field: "uid"})
	AssociationList = associations.List(page.Order{Field: "group"})
	InviteList      = invites.List(newest)
	MappingList     = mappings.List(byUID)
	RuleList        = accessRules.List(byUID)
	RequestList     = accessRequests.List(newest)
	AccessList      = page.List{Kind: "access", Fields: BindingList.Fields, Default: byUID}
)
