package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestErrorsNameTheStatement checks that an error begins with the first words of
// the failed statement, contains none of its values, and still wraps the
// driver's error.
func TestErrorsNameTheStatement(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		const text = "INSERT INTO\n\t\tno_such_table (name, value)\n\t\tVALUES ($1, $2)"
		const begin = `"INSERT INTO no_such_table (name, value) `
		ctx := t.Context()
		none := func(store.Scanner) (bool, error) { return false, nil }
		args := []any{"secret", "secret"}
		inTx := func(f func(*store.Tx) error) error { return s.Write(ctx, f) }
		for name, err := range map[string]error{
			"exec DB.Exec":   func() error { _, err := s.DB.Exec(ctx, text, args...); return err }(),
			"query DB.Row":   s.DB.Row(ctx, text, args, new(int)),
			"query DB.Rows":  s.DB.Rows(ctx, text, args, none),
			"exec Tx.Exec":   inTx(func(t *store.Tx) error { _, err := t.Exec(ctx, text, args...); return err }),
			"exec Tx.Later":  inTx(func(t *store.Tx) error { return t.Later(ctx, text, args...) }),
			"query Tx.Row":   inTx(func(t *store.Tx) error { return t.Row(ctx, text, args, new(int)) }),
			"query Tx.Rows":  inTx(func(t *store.Tx) error { return t.Rows(ctx, text, args, none) }),
			"query Snapshot": s.Snapshot(ctx, func(read store.Reader) error { return read(ctx, text, args, none) }),
		} {
			verb, _, _ := strings.Cut(name, " ")
			if err == nil || !strings.HasPrefix(err.Error(), verb+" "+begin) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.DB.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{"x"}, new([]byte)); !errors.Is(err,
			sql.ErrNoRows) {
			t.Errorf("no row: %v", err)
		}
		insert := func() error {
			_, err := s.DB.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)`, "twice", []byte("x"))
			return err
		}
		testkit.Must(t, insert())
		if err := insert(); !s.Duplicate(err) {
			t.Errorf("a second row: %v", err)
		}
		refused := fault.Missing("thing", "x")
		if err := s.DB.Rows(ctx, `SELECT 1`, nil, func(store.Scanner) (bool, error) {
			return false, refused
		}); err != refused {
			t.Errorf("a fault of the caller's: %v", err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.DB.Row(ended, `SELECT 1`, nil, new(int)); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// TestSnapshotsAtOnce begins more snapshots than there are SQLite connections, and lets each run new statements.
// It checks that no snapshot waits for another's connection.
func TestSnapshotsAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		const connections = 8
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var begun sync.WaitGroup
		begun.Add(connections)
		var group errgroup.Group
		for i := range connections {
			group.Go(func() error {
				return s.Snapshot(ctx, func(read store.Reader) error {
					begun.Done()
					begun.Wait()
					return read(ctx, fmt.Sprintf("SELECT count(*) + %d FROM groups", i), nil, func(store.Scanner) (bool, error) {
						return true, nil
					})
				})
			})
		}
		testkit.Must(t, group.Wait())
	})
}
