package pulldb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// NoteLostPulls records that records of pulls were lost.
func (s *Store) NoteLostPulls(ctx context.Context, n int64) error {
	_, err := s.Exec(ctx, `INSERT INTO pull_losses (n, at_ms) VALUES ($1, $2)`, n, store.MS(s.Time()))
	return err
}

// PullsLost reports whether records of pulls were lost since a time, and when they last
// were.
func (s *Store) PullsLost(ctx context.Context, since time.Time) (last time.Time, lost bool, _ error) {
	var at *int64
	err := s.Row(ctx, `SELECT max(at_ms) FROM pull_losses WHERE at_ms >= $1`, []any{store.MS(since)}, &at)
	if err != nil || at == nil {
		return last, false, err
	}
	return store.FromMS(*at), true, nil
}
