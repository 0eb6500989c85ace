package store_test

import (
	"errors"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestRaisedWithoutAccess: a transaction of the server itself relies on no access. If a statement of it fails with the
// error that means that an access has changed, then Write returns the error and does not repeat the transaction.
func TestRaisedWithoutAccess(t *testing.T) {
	s := storetest.Open(t, storetest.Postgres(t))
	runs := 0
	err := s.Write(t.Context(), func(tx *store.Tx) error {
		runs++
		_, err := tx.Exec(t.Context(), `SELECT 1 / (SELECT 0)`)
		return err
	})
	if err == nil || errors.Is(err, fault.Aborted) || runs != 1 {
		t.Errorf("after %d runs: %v", runs, err)
	}
}
