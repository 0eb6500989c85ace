// Package eventdb stores subscriptions to events and their deliveries.
package eventdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the subscriptions in a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of subscriptions in a database.
func New(db *store.DB) *Store {
	return &Store{DB: db}
}

// A Tx is a running transaction with methods that change subscriptions.
type Tx struct{ *store.Tx }

// In returns t with the methods that change subscriptions.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Kinds returns the kinds of resources that this package lists.
func Kinds() []store.Listing { return []store.Listing{subscriptions.Listing(), deliveries.Listing()} }

// The fields by which lists of subscriptions and deliveries can be ordered.
var (
	SubscriptionList = subscriptions.List(page.Order{Field: "uid"})
	DeliveryList     = deliveries.List(page.Order{Field: "create_time", Desc: true})
)
