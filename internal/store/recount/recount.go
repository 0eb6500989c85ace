// Package recount compares counters with the rows that they count, and corrects the
// counters of stored bytes after a restore.
package recount

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// CorrectBytes corrects the counters for stored bytes in a database that was just
// restored. They include the bytes of unfinished uploads, which are not part of a
// back-up. No other transaction may write at the same time.
func CorrectBytes(ctx context.Context, s *store.DB) error {
	return s.Write(ctx, func(t *store.Tx) error {
		drifts, err := byteDrifts(ctx, t.Rows)
		if err != nil {
			return fmt.Errorf("count stored bytes: %w", err)
		}
		for _, d := range drifts {
			_, err := t.Exec(ctx, `INSERT INTO counters (kind, grp, shard, n, children) VALUES ($1, $2, 0, $3, 0)
				ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n + excluded.n`,
				store.BytesCounter, store.Segment(d.Group), d.Rows-d.Counted)
			if err != nil {
				return fmt.Errorf("count stored bytes: %w", err)
			}
		}
		return nil
	})
}
