// Package iamdb stores the resources of access control: groups, identities, roles, role bindings, identity
// providers, mappings, invites and access requests. Package sessiondb has the methods about sessions.
//
// Every exported method of Store is one transaction. A write appends its event to the outbox in the same transaction.
// Methods of Tx run inside a transaction of the caller.
package iamdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the access control tables of a database. It is safe for concurrent use.
type Store struct {
	*store.DB
	*sessions
}

type sessions = sessiondb.Store

// New returns the Store of a database.
func New(db *store.DB) *Store {
	return &Store{DB: db, sessions: sessiondb.New(db, admitSession)}
}

// A Tx is an open transaction with methods that change access control.
type Tx struct{ *store.Tx }

// In returns t with the methods of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the kinds of resources that this package lists.
func Kinds() []store.Listing {
	return []store.Listing{
		groups.Listing(), identities.Listing(), roles.Listing(), bindings.Listing(), providers.Listing(),
		associations.Listing(), invites.Listing(), mappings.Listing(),
		accessRules.Listing(), accessRequests.Listing(),
	}
}

// The lists of this package with the orders that they accept.
var (
	byUID  = page.Order{Field: "uid"}
	newest = page.Order{Field: "create_time", Desc: true}

	GroupList       = groups.List(byUID)
	IdentityList    = identities.List(byUID)
	RoleList        = roles.List(byUID)
	BindingList     = bareBindings.List(byUID)
	ProviderList    = providers.List(byUID)
	AssociationList = associations.List(page.Order{Field: "group"})
	InviteList      = invites.List(newest)
	MappingList     = mappings.List(byUID)
	RuleList        = accessRules.List(byUID)
	RequestList     = accessRequests.List(newest)
	AccessList      = page.List{Kind: "access", Fields: BindingList.Fields, Default: byUID}
)
