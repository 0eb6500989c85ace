package pulldb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store"
)

// NoteLostPulls stores that n pulls were lost now, which means that there are no records of them.
func (s *Store) NoteLostPulls(ctx context.Context, n int64) error {
	_, err := s.Exec(ctx, `INSERT INTO pull_losses (n, at_ms) VALUES ($1, $2)`, n, store.MS(s.Time()))
	return err
}

// PullsLost reports whether records of pulls were lost since a time, and returns the time of the last loss.
func (s *Store) PullsLost(ctx context.Context, since time.Time) (last time.Time, lost bool, _ error) {
	var ms *int64
	err := s.Row(ctx, `SELECT max(at_ms) FROM pull_losses WHERE at_ms >= $1`, []any{store.MS(since)}, &ms)
	if err != nil || ms == nil {
		return last, false, err
	}
	return store.FromMS(*ms), true, nil
}
