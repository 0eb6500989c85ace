package engine

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// A PostgresTx runs the statements of a transaction on PostgreSQL. It sends BEGIN with
// the first statement, and COMMIT with the last one, because a round trip costs more
// than a statement.
type PostgresTx struct {
	on    *sql.Conn
	pg    *pgx.Conn // the connection inside on; it is used only here until on is closed
	shard int
	begun bool
}

func newPostgresTx(on *sql.Conn) (*PostgresTx, error) {
	pg, err := postgresConn(on)
	return &PostgresTx{on: on, pg: pg}, err
}

func postgresConn(on *sql.Conn) (pg *pgx.Conn, _ error) {
	err := on.Raw(func(c any) error {
		pg = c.(*stdlib.Conn).Conn()
		return nil
	})
	return pg, err
}

// queryPostgres runs a query outside of transactions. The returned rows hold a
// connection until they are closed. If a connection was lost before anything was sent,
// queryPostgres tries another one, as database/sql does.
func queryPostgres(ctx context.Context, pool *sql.DB, query string, args []any) (Rows, error) {
	const tries = 3
	for try := 1; ; try++ {
		on, err := pool.Conn(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		pg, err := postgresConn(on)
		if err != nil {
			return nil, errors.Join(err, on.Close())
		}
		rows, err := pg.Query(ctx, query, args...)
		if err == nil {
			return &postgresRows{Rows: rows, end: on.Close}, nil
		}
		on.Close()
		if try == tries || !pgconn.SafeToRetry(err) {
			return nil, err
		}
	}
}

// Shard returns the shard of the counters that the transaction should change. No
// other transaction in this process is likely to use it.
func (p *PostgresTx) Shard() int { return p.shard }

// Exec implements Conn.
func (p *PostgresTx) Exec(ctx context.Context, query string, args []any) (int64, error) {
	if p.begun {
		tag, err := p.pg.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	}
	results, err := p.send(ctx, Statement{query, args})
	if err != nil {
		return 0, err
	}
	tag, err := results.Exec()
	return tag.RowsAffected(), cmp.Or(err, results.Close())
}

// Query implements Conn.
func (p *PostgresTx) Query(ctx context.Context, query string, args []any) (Rows, error) {
	if p.begun {
		rows, err := p.pg.Query(ctx, query, args...)
		return &postgresRows{Rows: rows}, err
	}
	results, err := p.send(ctx, Statement{query, args})
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, cmp.Or(err, results.Close())
	}
	return &postgresRows{rows, results.Close}, nil
}

// send sends statements in one round trip, after BEGIN if the transaction has not
// begun. It returns the results of the statements.
func (p *PostgresTx) send(ctx context.Context, statements ...Statement) (pgx.BatchResults, error) {
	batch := &pgx.Batch{}
	if !p.begun {
		batch.Queue(`BEGIN`)
	}
	for _, s := range statements {
		batch.Queue(s.Text, s.Args...)
	}
	results := p.pg.SendBatch(ctx, batch)
	if p.begun {
		return results, nil
	}
	p.begun = true
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // Close returns the same error
		return nil, fmt.Errorf("begin: %w", err)
	}
	return results, nil
}

// ExecAll runs statements in one round trip, and returns how many rows each changed.
func (p *PostgresTx) ExecAll(ctx context.Context, statements []Statement) ([]int64, error) {
	results, err := p.send(ctx, statements...)
	if err != nil && len(statements) > 0 {
		return nil, WrapError("exec", statements[0].Text, err)
	}
	if err != nil {
		return nil, err
	}
	touched, err := readResults(results, statements)
	return touched, cmp.Or(err, results.Close())
}

// readResults reads the results of statements, and returns how many rows each changed.
func readResults(results pgx.BatchResults, statements []Statement) (touched []int64, _ error) {
	for _, s := range statements {
		tag, err := results.Exec()
		if err != nil {
			return nil, WrapError("exec", s.Text, err)
		}
		if s.Text == `COMMIT` && tag.String() != `COMMIT` { // PostgreSQL answers ROLLBACK if the transaction has failed
			return nil, fmt.Errorf("commit: the answer was %s", tag)
		}
		touched = append(touched, tag.RowsAffected())
	}
	return touched, nil
}

// commit sends the last statements and commits.
func (p *PostgresTx) commit(ctx context.Context, last []Statement) error {
	if !p.begun && len(last) == 0 {
		return nil
	}
	_, err := p.ExecAll(ctx, append(last, Statement{Text: `COMMIT`}))
	return err
}

// rollback undoes the transaction. If that fails, the connection is not used again.
func (p *PostgresTx) rollback(ctx context.Context) {
	if !p.begun {
		return
	}
	if _, err := p.pg.Exec(context.WithoutCancel(ctx), `ROLLBACK`); err != nil {
		_ = p.on.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// Copy adds the rows that next returns to a table, until next returns io.EOF. It
// returns the number of rows.
func (p *PostgresTx) Copy(
	ctx context.Context, table string, columns []string, next func() ([]any, error),
) (int64, error) {
	if !p.begun {
		if _, err := p.ExecAll(ctx, nil); err != nil {
			return 0, err
		}
	}
	n, err := p.pg.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		row, err := next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return row, err
	}))
	return n, WrapError("copy into", table, err)
}

// postgresRows are the rows of a query.
type postgresRows struct {
	pgx.Rows
	end func() error // releases what the rows were read from; may be nil
}

// Close reads the remaining rows, so that another statement can run.
func (r *postgresRows) Close() error {
	r.Rows.Close()
	err := r.Err()
	if r.end != nil {
		err = cmp.Or(err, r.end())
		r.end = nil
	}
	return err
}
