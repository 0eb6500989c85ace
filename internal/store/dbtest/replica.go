package dbtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// Renew makes a process write its heartbeat and apply new changes. If the
// history of the database has changed, that takes as long as a lease.
func Renew(t testing.TB, db *store.DB) {
	t.Helper()
	newest, err := db.Renew(t.Context(), replica.Position{})
	if errors.Is(err, fault.Unavailable) {
		testkit.Until(t, func() bool {
			newest, err = db.Renew(t.Context(), replica.Position{})
			return !errors.Is(err, fault.Unavailable)
		})
	}
	testkit.Must(t, err)
	_, err = db.Renew(t.Context(), newest)
	testkit.Must(t, err)
}

// Follow calls Renew, and then renews the lease of a process continuously until the test ends.
func Follow(t testing.TB, db *store.DB) {
	t.Helper()
	Renew(t, db)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		var newest replica.Position
		for ctx.Err() == nil {
			var err error
			if newest, err = db.Renew(ctx, newest); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}
