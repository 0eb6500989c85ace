package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// An engine is a database to measure on.
type engine interface {
	name() string

	// create returns the address of the database for a dataset, and whether it exists
	// from an earlier run.
	create(ctx context.Context, dataset string) (url string, found bool, _ error)

	// replace makes the database empty.
	replace(ctx context.Context, url string) error

	// fill loads tables fast: it drops their indexes and creates them again afterwards.
	fill(ctx context.Context, url string, tables []table) error

	// connect opens the database with as durable commits as the store has.
	connect(url string, writers int) (*sql.DB, error)

	// dropAll deletes what create has created, unless datasets are kept.
	dropAll(ctx context.Context) error
}

// empty returns the address of an empty database.
func empty(ctx context.Context, e engine, name string) (url string, _ error) {
	url, found, err := e.create(ctx, name)
	if err == nil && found {
		err = e.replace(ctx, url)
	}
	return url, err
}

func (b *bench) open(name string) (engine, error) {
	folder := b.folder
	if b.datasets != "" {
		folder = b.datasets
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	if name == "sqlite" {
		return &sqliteEngine{folder: folder}, nil
	}
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		return nil, errors.New("HOLDFAST_TEST_POSTGRES is not set: use make bench, or -engines sqlite")
	}
	return &postgresEngine{server: server, keep: b.datasets != ""}, nil
}

// execAll executes statements.
func execAll(ctx context.Context, on *sql.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := on.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// fillTables fills tables over one connection, on which it first executes setup. It drops the
// indexes of a table before load and creates them again afterwards. indexes is a query for two
// columns, the statements to drop and to create the indexes of the table $1.
func fillTables(
	ctx context.Context, db *sql.DB, setup []string, tables []table, indexes string,
	load func(context.Context, *sql.Conn, table) error, finish ...string,
) error {
	defer db.Close()
	on, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer on.Close()
	if err := execAll(ctx, on, setup...); err != nil {
		return err
	}
	for _, t := range tables {
		drop, err := texts(ctx, on, `SELECT drop_it FROM (`+indexes+`) AS i ORDER BY 1`, t.name)
		if err != nil {
			return err
		}
		create, err := texts(ctx, on, `SELECT create_it FROM (`+indexes+`) AS i ORDER BY 1`, t.name)
		if err != nil {
			return err
		}
		err = errors.Join(execAll(ctx, on, drop...), load(ctx, on, t), execAll(ctx, on, create...))
		if err != nil {
			return fmt.Errorf("fill %s: %w", t.name, err)
		}
	}
	return execAll(ctx, on, finish...)
}

// texts returns the first column of a query.
func texts(ctx context.Context, on *sql.Conn, query string, args ...any) ([]string, error) {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// dataFolder creates a data directory for a server.
func (b *bench) dataFolder() (string, error) { return os.MkdirTemp(b.folder, "data-") }
