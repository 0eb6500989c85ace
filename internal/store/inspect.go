package store

import (
	"context"
	"fmt"
	"time"
)

// A Vitals is what an operator wants to know of a database.
type Vitals struct {
	Version  string        // of SQLite or PostgreSQL
	Schema   int64         // the number of its last migration
	Needs    int64         // the migration that a program must know to serve it
	Skew     time.Duration // how far its clock is ahead of ours
	Answers  time.Duration // how long a query takes
	Replicas []ReplicaState
}

// A ReplicaState is what the database knows of a replica.
type ReplicaState struct {
	ID     string
	Age    time.Duration // of its latest heartbeat
	Behind int64         // revisions that it has not applied
}

// Inspect returns the vitals of a database.
func (s *DB) Inspect(ctx context.Context) (v Vitals, err error) {
	query, name := `SELECT sqlite_version()`, "SQLite"
	if s.Engine.Postgres {
		query, name = `SELECT current_setting('server_version')`, "PostgreSQL"
	}
	if err := s.Row(ctx, query, nil, &v.Version); err != nil {
		return v, err
	}
	v.Version = name + " " + v.Version
	if v.Schema, err = schemaVersion(ctx, s.Rows); err != nil {
		return v, err
	}
	if err := s.Row(ctx, needsQuery, nil, &v.Needs); err != nil {
		v.Needs = v.Schema // older than the table
	}
	began := time.Now()
	var clock int64
	if err := s.Row(ctx, `SELECT `+s.Engine.Clock, nil, &clock); err != nil {
		return v, err
	}
	v.Answers = time.Since(began)
	v.Skew = FromMS(clock).Sub(began.Add(v.Answers / 2)).Truncate(time.Millisecond)
	v.Replicas, err = ReadAll(ctx, s.Rows, func(row Scanner) (r ReplicaState, err error) {
		var age int64
		err = row.Scan(&r.ID, &age, &r.Behind)
		r.Age = time.Duration(age) * time.Millisecond
		return r, err
	}, fmt.Sprintf(`SELECT r.id, %s - r.renew_ms, v.rev - r.grants_at FROM replicas AS r, revision AS v
		WHERE v.id = 1 ORDER BY r.id`, s.Engine.Clock))
	return v, err
}
