package engine

import (
	"context"
	"database/sql"
	"errors"
)

// A Database is an open database. It is safe for concurrent use.
type Database struct {
	Engine Engine
	Pool   *sql.DB // connections for reads and, on PostgreSQL, writes

	prepared  statementCache // statements prepared on Pool; only for SQLite, because pgx has its own cache
	committer committer
	close     []func() error
}

// A committer runs a transaction. It returns nil when the transaction is on disk, and
// an error when it is rolled back.
type committer interface {
	run(ctx context.Context, t Transaction) error
}

// A Transaction is a write.
type Transaction interface {
	// Run runs the statements, including the last ones on SQLite. If it returns
	// ErrDryRun, the transaction is rolled back after the database has checked all
	// statements.
	Run(ctx context.Context, on Conn) error

	// Closing returns the statements that are sent to PostgreSQL together with the commit.
	Closing() []Statement

	// Revision returns the revision that the transaction has written, or 0.
	Revision() int64
}

// ErrDryRun makes a transaction roll back after it was validated.
var ErrDryRun = errors.New("dry run")

// A Conn runs the statements of a transaction.
type Conn interface {
	Exec(ctx context.Context, query string, args []any) (touched int64, _ error)
	Query(ctx context.Context, query string, args []any) (Rows, error)
}

// Write runs a transaction once. If the transaction should be retried, Failure
// returns Conflict for the error.
func (d *Database) Write(ctx context.Context, t Transaction) error { return d.committer.run(ctx, t) }

// Close waits until the running commit has ended, and closes the database.
func (d *Database) Close() error {
	var errs []error
	for i := len(d.close) - 1; i >= 0; i-- {
		errs = append(errs, d.close[i]())
	}
	d.close = nil
	return errors.Join(errs...)
}

// Query runs a query outside of transactions.
func (d *Database) Query(ctx context.Context, query string, args []any) (Rows, error) {
	if d.Engine.Postgres {
		return queryPostgres(ctx, d.Pool, query, args)
	}
	st, err := d.prepared.get(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// A Snapshot reads one state of the database with several statements.
type Snapshot struct {
	db         *Database
	tx         *sql.Tx
	unprepared []string
}

// Snapshot begins a transaction that only reads.
func (d *Database) Snapshot(ctx context.Context) (*Snapshot, error) {
	tx, err := d.Pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	return &Snapshot{db: d, tx: tx}, nil
}

// Query runs a query.
func (s *Snapshot) Query(ctx context.Context, query string, args []any) (Rows, error) {
	st, ok := s.db.prepared.cached(query)
	if !ok {
		s.unprepared = append(s.unprepared, query)
		return s.tx.QueryContext(ctx, query, args...)
	}
	// the statement is closed with the transaction
	return preparedStmt{s.tx.StmtContext(ctx, st.Stmt)}.QueryContext(ctx, args...)
}

// End ends the transaction, and prepares the statements that were not prepared
// yet. Query does not prepare them, because that needs another connection: if
// there were as many snapshots as connections, they would wait for each other.
func (s *Snapshot) End(ctx context.Context) {
	_ = s.tx.Rollback() // a snapshot writes nothing
	if s.db.Engine.Postgres {
		return
	}
	for _, query := range s.unprepared {
		_, _ = s.db.prepared.get(ctx, query) // if this fails, the statement is only not prepared
	}
}

// QueuedWrites returns how many writes are waiting for the SQLite writer.
func (d *Database) QueuedWrites() int {
	if b, ok := d.committer.(*batcher); ok {
		return len(b.queue)
	}
	return 0
}
