package store

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// AcquireLease acquires or renews the named lease for a time, unless another holder has
// it, and reports whether it succeeded. It uses the clock of the database, so that the
// clocks of replicas need not agree.
func (s *DB) AcquireLease(ctx context.Context, name, holder string, life time.Duration) (bool, error) {
	n, err := s.Exec(ctx, `
		INSERT INTO leases (name, holder, until_ms) VALUES ($1, $2, `+s.Engine.Clock+` + $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms
		WHERE leases.holder = excluded.holder OR leases.until_ms <= `+s.Engine.Clock, name, holder, life.Milliseconds())
	return n > 0, err
}

// RequireLease returns fault.Aborted unless the holder has a lease, and prevents others
// from acquiring it until the commit. So a holder that was suspended for longer than its
// lease cannot write.
func (t *Tx) RequireLease(ctx context.Context, name, holder string) error {
	n, err := t.Exec(ctx, `UPDATE leases SET holder = holder WHERE name = $1 AND holder = $2`, name, holder)
	if err == nil && n == 0 {
		return fault.New(fault.Aborted, "Aborted: another replica does this now")
	}
	return err
}

// ReleaseLease releases a lease, if the holder has it.
func (s *DB) ReleaseLease(ctx context.Context, name, holder string) error {
	_, err := s.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
	return err
}
