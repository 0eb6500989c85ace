package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// A testWrite is a transaction that runs a function.
type testWrite func(ctx context.Context, on Conn) error

func (f testWrite) Run(ctx context.Context, on Conn) error { return f(ctx, on) }
func (f testWrite) Closing() []Statement                   { return nil }
func (f testWrite) Revision() int64                        { return 0 }

// TestWritesShareACommit lets the writes of one commit fail in every combination.
// It checks that a failed write leaves nothing behind, and that every other write
// is complete.
func TestWritesShareACommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	d, err := OpenSQLite(t.Context(), path, 0, func(context.Context, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	refused := errors.New("refused")
	const writes = 4
	for fails := range 1 << writes {
		var batch []*queuedWrite
		name := func(i int) string { return fmt.Sprintf("%04b %d", fails, i) }
		for i := range writes {
			insert := testWrite(func(ctx context.Context, on Conn) error {
				const text = `INSERT INTO settings (name, value) VALUES ($1, $2)`
				if _, err := on.Exec(ctx, text, []any{name(i), []byte{1}}); err != nil {
					return err
				}
				if fails&(1<<i) != 0 {
					return refused
				}
				return nil
			})
			batch = append(batch, &queuedWrite{ctx: t.Context(), done: make(chan struct{}), tx: insert})
		}
		// safe without the queue, because no other goroutine writes
		if _, err := d.committer.(*batcher).transact(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		for i, w := range batch {
			want, rows := 1, 0
			if fails&(1<<i) != 0 {
				want = 0
			}
			row := d.Pool.QueryRowContext(t.Context(), `SELECT count(*) FROM settings WHERE name = $1`, name(i))
			if err := row.Scan(&rows); err != nil {
				t.Fatal(err)
			}
			if rows != want || errors.Is(w.err, refused) != (want == 0) {
				t.Errorf("of %04b, write %d: %d rows, error %v", fails, i, rows, w.err)
			}
		}
	}
}
