// Package signindb stores accounts with their passwords, passkeys and recovery
// codes, and the state between two steps of a sign-in.
package signindb

import (
	"context"
	"crypto/sha256"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store stores accounts and sign-in state in a database. It is safe for
// concurrent use.
type Store struct{ *store.DB }

// New returns a Store over db.
func New(db *store.DB) *Store {
	return &Store{DB: db}
}

// A Tx is a transaction that can change accounts and sign-in state.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

func (s *Store) write(ctx context.Context, f func(Tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(In(t)) })
}

// Digest returns the form in which a code or secret is stored: its SHA-256.
func Digest(text string) []byte {
	d := sha256.Sum256([]byte(text))
	return d[:]
}

// AccountList lists accounts in the order of their UIDs.
var AccountList = accounts.List(page.Order{Field: "uid"})
