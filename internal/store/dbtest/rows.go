package dbtest

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// LastChange returns the time of the last change to grants.
func LastChange(t testing.TB, s *store.DB) time.Time {
	t.Helper()
	var ms int64
	testkit.Must(t, s.Row(t.Context(), `SELECT at_ms FROM revision WHERE id = 1`, nil, &ms))
	return store.FromMS(ms)
}

// CountRows counts the rows in a table that a condition selects.
func CountRows(t testing.TB, s *store.DB, table, where string) (n int) {
	t.Helper()
	testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM `+table+` WHERE `+where, nil, &n))
	return n
}
