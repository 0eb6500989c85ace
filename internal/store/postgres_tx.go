package store

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

// A postgresTx runs the statements of a transaction on PostgreSQL. BEGIN is sent
// with the first of them, and COMMIT with the last, because a round trip costs more
// than a statement.
type postgresTx struct {
	on    *sql.Conn
	pg    *pgx.Conn // of on, which lends it to nobody else until it is closed
	begun bool
}

func newPostgresTx(on *sql.Conn) (*postgresTx, error) {
	pg, err := postgresConn(on)
	return &postgresTx{on: on, pg: pg}, err
}

func postgresConn(on *sql.Conn) (pg *pgx.Conn, _ error) {
	err := on.Raw(func(c any) error {
		pg = c.(*stdlib.Conn).Conn()
		return nil
	})
	return pg, err
}

// queryPostgres runs a query outside of transactions. Its rows have a connection until they are closed. If a connection
// was lost before anything was sent, it takes another one, as database/sql does.
func (s *DB) queryPostgres(ctx context.Context, query string, args []any) (rows, error) {
	const tries = 3
	for try := 1; ; try++ {
		on, err := s.read.Conn(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		pg, err := postgresConn(on)
		if err != nil {
			return nil, errors.Join(err, on.Close())
		}
		all, err := pg.Query(ctx, query, args...)
		if err == nil {
			return &postgresRows{Rows: all, end: on.Close}, nil
		}
		on.Close()
		if try == tries || !pgconn.SafeToRetry(err) {
			return nil, err
		}
	}
}

func (p *postgresTx) exec(ctx context.Context, query string, args []any) (int64, error) {
	if p.begun {
		tag, err := p.pg.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	}
	results, err := p.begin(ctx, Statement{query, args})
	if err != nil {
		return 0, err
	}
	tag, err := results.Exec()
	return tag.RowsAffected(), cmp.Or(err, results.Close())
}

func (p *postgresTx) query(ctx context.Context, query string, args []any) (rows, error) {
	if p.begun {
		all, err := p.pg.Query(ctx, query, args...)
		return &postgresRows{Rows: all}, err
	}
	results, err := p.begin(ctx, Statement{query, args})
	if err != nil {
		return nil, err
	}
	all, err := results.Query()
	if err != nil {
		return nil, cmp.Or(err, results.Close())
	}
	return &postgresRows{all, results.Close}, nil
}

// begin sends statements, and before them what begins the transaction if nothing has. What it returns are the results
// of the statements.
func (p *postgresTx) begin(ctx context.Context, all ...Statement) (pgx.BatchResults, error) {
	batch := &pgx.Batch{}
	if !p.begun {
		batch.Queue(`BEGIN`)
	}
	for _, d := range all {
		batch.Queue(d.Text, d.Args...)
	}
	results := p.pg.SendBatch(ctx, batch)
	if p.begun {
		return results, nil
	}
	p.begun = true
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // which says the same
		return nil, fmt.Errorf("begin: %w", err)
	}
	return results, nil
}

// send runs statements in one round trip.
func (p *postgresTx) send(ctx context.Context, all []Statement) error {
	_, err := p.execAll(ctx, all)
	return err
}

// execAll is send, and returns how many rows each statement touched.
func (p *postgresTx) execAll(ctx context.Context, all []Statement) ([]int64, error) {
	results, err := p.begin(ctx, all...)
	if err != nil && len(all) > 0 {
		return nil, wrap("exec", all[0].Text, err)
	}
	if err != nil {
		return nil, err
	}
	touched, err := readResults(results, all)
	return touched, cmp.Or(err, results.Close())
}

// readResults reads the results of statements.
func readResults(results pgx.BatchResults, all []Statement) (touched []int64, _ error) {
	for _, d := range all {
		tag, err := results.Exec()
		if err != nil {
			return nil, wrap("exec", d.Text, err)
		}
		if d.Text == `COMMIT` && tag.String() != `COMMIT` { // how PostgreSQL ends a transaction that has failed
			return nil, fmt.Errorf("commit: the answer was %s", tag)
		}
		touched = append(touched, tag.RowsAffected())
	}
	return touched, nil
}

// commit sends the last statements and ends the transaction with its effects.
func (p *postgresTx) commit(ctx context.Context, last []Statement) error {
	if !p.begun && len(last) == 0 {
		return nil
	}
	return p.send(ctx, append(last, Statement{Text: `COMMIT`}))
}

// rollback ends a transaction without its effects. A connection that cannot even
// do that is not used again.
func (p *postgresTx) rollback(ctx context.Context) {
	if !p.begun {
		return
	}
	if _, err := p.pg.Exec(context.WithoutCancel(ctx), `ROLLBACK`); err != nil {
		_ = p.on.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// copy adds the rows that next returns to a table, until it returns io.EOF.
func (p *postgresTx) copy(ctx context.Context, t Table, next func() ([]any, error)) (int64, error) {
	if !p.begun {
		if err := p.send(ctx, nil); err != nil {
			return 0, err
		}
	}
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = c.Name
	}
	n, err := p.pg.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		row, err := next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return row, err
	}))
	return n, wrap("copy into", t.Name, err)
}

// postgresRows are the rows of a query.
type postgresRows struct {
	pgx.Rows
	end func() error // of what they are read from, or nil
}

// Close reads the rest, so that another statement can run.
func (r *postgresRows) Close() error {
	r.Rows.Close()
	err := r.Err()
	if r.end != nil {
		err = cmp.Or(err, r.end())
		r.end = nil
	}
	return err
}
