// Package pulldb answers questions about recorded pulls: which identity has pulled which image, how often, and
// whether records were lost. Package registrydb writes the records.
package pulldb

import (
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads the records of pulls. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the store of pulls in a database.
func New(db *store.DB) *Store { return &Store{db} }
