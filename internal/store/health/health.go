// Package health reports the state of a database to its operator.
package health

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

// A Database is the state of a database.
type Database struct {
	Version  string        // SQLite or PostgreSQL, and its version
	Schema   int64         // number of the last migration
	Needs    int64         // lowest migration that a program must know to serve the database
	Skew     time.Duration // how far the clock of the database is ahead of this process's clock
	Latency  time.Duration // duration of one query
	Replicas []Replica
}

// A Replica is the last heartbeat of a replica.
type Replica struct {
	ID     string
	Age    time.Duration // time since the heartbeat
	Behind int64         // revisions that the replica has not applied
}

// Inspect returns the state of a database.
func Inspect(ctx context.Context, s *store.DB) (h Database, err error) {
	query, name := `SELECT sqlite_version()`, "SQLite"
	if s.Engine.Postgres {
		query, name = `SELECT current_setting('server_version')`, "PostgreSQL"
	}
	if err := s.Row(ctx, query, nil, &h.Version); err != nil {
		return h, err
	}
	h.Version = name + " " + h.Version
	if h.Schema, err = SchemaVersion(ctx, s.Rows); err != nil {
		return h, err
	}
	if err := s.Row(ctx, schema.NeedsQuery, nil, &h.Needs); err != nil {
		h.Needs = h.Schema // the database is so old that it does not have the table schema_needs
	}
	began := time.Now()
	var clock int64
	if err := s.Row(ctx, `SELECT `+s.Engine.Clock, nil, &clock); err != nil {
		return h, err
	}
	h.Latency = time.Since(began)
	h.Skew = store.FromMS(clock).Sub(began.Add(h.Latency / 2)).Truncate(time.Millisecond)
	h.Replicas, err = store.ReadAll(ctx, s.Rows, func(row store.Scanner) (r Replica, err error) {
		var age int64
		err = row.Scan(&r.ID, &age, &r.Behind)
		r.Age = time.Duration(age) * time.Millisecond
		return r, err
	}, fmt.Sprintf(`SELECT r.id, %s - r.renew_ms, v.rev - r.grants_at FROM replicas AS r, revision AS v
		WHERE v.id = $1 ORDER BY r.id`, s.Engine.Clock), store.RevisionGrants)
	return h, err
}

// SchemaVersion returns the number of the last migration that the database has.
func SchemaVersion(ctx context.Context, read store.Reader) (int64, error) {
	versions, err := store.ReadColumn[int64](ctx, read, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`)
	if err != nil {
		return 0, fmt.Errorf("the database has no schema: %w", err)
	}
	return versions[0], nil
}
