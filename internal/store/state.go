package store

import (
	"database/sql"
	"time"
)

// PoolStats returns the state of the pool of connections. For SQLite it is the pool
// of those that read.
func (s *DB) PoolStats() sql.DBStats { return s.read.Stats() }

// Lag returns how many revisions this process had yet to apply when it renewed its
// lease, and how long ago that was. It reports false if no other process can write
// to the database, or before the first renewal.
func (s *DB) Lag() (revisions int64, age time.Duration, ok bool) {
	if s.replica == nil {
		return 0, 0, false
	}
	heard := s.replica.heard.Load()
	if heard == nil {
		return 0, 0, false
	}
	return s.replica.lag.Load(), time.Since(*heard), true
}
