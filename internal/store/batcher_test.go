package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// TestWritesShareACommit has writes of one commit fail in every combination: of
// those that do, nothing is left, and of the others everything.
func TestWritesShareACommit(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	refused := errors.New("refused")
	const writes = 4
	for fails := range 1 << writes {
		var batch []*queuedWrite
		name := func(i int) string { return fmt.Sprintf("%04b %d", fails, i) }
		for i := range writes {
			batch = append(batch, &queuedWrite{ctx: t.Context(), done: make(chan struct{}), f: func(tx *Tx) error {
				if _, err := tx.Exec(context.Background(), `INSERT INTO settings (name, value) VALUES ($1, $2)`, name(i), []byte{1}); err != nil {
					return err
				}
				if fails&(1<<i) != 0 {
					return refused
				}
				return nil
			}})
		}
		if _, err := s.commit.(*batcher).transact(t.Context(), batch); err != nil { // nobody else writes
			t.Fatal(err)
		}
		for i, j := range batch {
			want, rows := 1, 0
			if fails&(1<<i) != 0 {
				want = 0
			}
			if err := s.Row(t.Context(), `SELECT count(*) FROM settings WHERE name = $1`, []any{name(i)}, &rows); err != nil {
				t.Fatal(err)
			}
			if rows != want || errors.Is(j.err, refused) != (want == 0) {
				t.Errorf("of %04b, write %d: %d rows, error %v", fails, i, rows, j.err)
			}
		}
	}
}
