// Package eventdb stores subscriptions to events and their deliveries.
package eventdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about subscriptions. It is safe for
// concurrent use.
type Store struct{ *store.DB }

// New returns the store of subscriptions in a database.
func New(db *store.DB) *Store {
	return &Store{DB: db}
}

// A Tx is a transaction under way, with the changes to subscriptions.
type Tx struct{ *store.Tx }

// In returns t with the changes to subscriptions.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns what the lists of this package read.
func Kinds() []store.Listing { return []store.Listing{subscriptions.Listing(), deliveries.Listing()} }

// How lists are ordered.
var (
	SubscriptionList = subscriptions.List(page.Order{Field: "uid"})
	DeliveryList     = deliveries.List(page.Order{Field: "create_time", Desc: true})
)
