// Package signindb stores accounts with their passwords, passkeys and recovery codes,
// and what a sign-in leaves for its next step.
package signindb

import (
	"context"
	"crypto/sha256"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store is the part of a database that is about people's sign-in. It is safe for
// concurrent use.
type Store struct{ *store.DB }

// New returns the store of people's sign-in in a database.
func New(db *store.DB) *Store {
	return &Store{DB: db}
}

// A Tx is a transaction under way, with the changes to people's sign-in.
type Tx struct{ *store.Tx }

// In returns t with the changes to people's sign-in.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Digest returns the form in which a code or secret is stored: its SHA-256.
func Digest(text string) []byte {
	d := sha256.Sum256([]byte(text))
	return d[:]
}

// AccountList is how accounts are ordered.
var AccountList = accounts.List(page.Order{Field: "uid"})
