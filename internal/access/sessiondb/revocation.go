package sessiondb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Revocations returns the identities that were deleted after since and the
// subjects of sessions that were ended after since, each with its time. Tokens
// that were issued for them up to that time are void.
func (s *Store) Revocations(ctx context.Context, since time.Time) (map[resource.UID]time.Time, error) {
	times, err := store.ReadMap[resource.UID, int64](ctx, s.Rows,
		`SELECT identity, at_ms FROM revocations WHERE at_ms > $1`, store.MS(since))
	revoked := map[resource.UID]time.Time{}
	for uid, ms := range times {
		revoked[uid] = store.FromMS(ms)
	}
	return revoked, err
}

// Revoke makes the tokens of an identity or of a session void, and deletes
// revocations that are older than any valid token.
func (t Tx) Revoke(ctx context.Context, identity resource.UID) error {
	currentTime := t.DB.Time()
	oldest := currentTime.Add(-revocationsKept)
	if _, err := t.Exec(ctx, `DELETE FROM revocations WHERE at_ms < $1`, store.MS(oldest)); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO revocations (identity, at_ms) VALUES ($1, $2)
		ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms`, string(identity), store.MS(currentTime))
	t.IdentitiesChanged(identity)
	return err
}

// revocationsKept is how long revocations are stored. It is longer than the lifetime of any token that this service
// signs.
const revocationsKept = 48 * time.Hour
