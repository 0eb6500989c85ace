// Package lease gives a task to one replica for a time. Until the lease ends, no other replica begins the task.
package lease

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Acquire acquires or renews the named lease for a time, unless another holder has
// it, and reports whether it succeeded. It uses the clock of the database, so that the
// clocks of replicas need not agree.
func Acquire(ctx context.Context, s *store.DB, name, holder string, life time.Duration) (bool, error) {
	n, err := s.Exec(ctx, `
		INSERT INTO leases (name, holder, until_ms) VALUES ($1, $2, `+s.Engine.Clock+` + $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms
		WHERE leases.holder = excluded.holder OR leases.until_ms <= `+s.Engine.Clock, name, holder, life.Milliseconds())
	return n > 0, err
}

// Require returns fault.Aborted unless the holder has a lease, and prevents others
// from acquiring it until the commit. So a holder that was suspended for longer than its
// lease cannot write.
func Require(ctx context.Context, t *store.Tx, name, holder string) error {
	n, err := t.Exec(ctx, `UPDATE leases SET holder = holder WHERE name = $1 AND holder = $2`, name, holder)
	if err == nil && n == 0 {
		return fault.New(fault.Aborted, "Aborted: another replica does this now")
	}
	return err
}

// Release releases a lease, if the holder has it.
func Release(ctx context.Context, s *store.DB, name, holder string) error {
	_, err := s.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
	return err
}
