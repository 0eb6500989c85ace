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
	create(ctx context.Context, dataset string) (url string, found bool)

	// replace makes the database empty.
	replace(ctx context.Context, url string)

	// fill loads tables fast: it drops their indexes and creates them again afterwards. No
	// triggers run, so there is no history of grants of what it loads.
	fill(ctx context.Context, url string, tables []table)

	// connect opens the database with as durable commits as the store has.
	connect(url string, writers int) *sql.DB

	// dropAll deletes what create has created, unless datasets are kept.
	dropAll(ctx context.Context) error
}

// empty returns the address of an empty database.
func empty(ctx context.Context, e engine, name string) string {
	url, found := e.create(ctx, name)
	if found {
		e.replace(ctx, url)
	}
	return url
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
func execAll(ctx context.Context, on *sql.Conn, statements ...string) {
	for _, s := range statements {
		if _, err := on.ExecContext(ctx, s); err != nil {
			check(fmt.Errorf("%s: %w", s, err))
		}
	}
}

// fillTables fills tables over one connection, on which it first executes setup. It drops the
// indexes of a table before load and creates them again afterwards. indexes is a query for two
// columns, the statements to drop and to create the indexes of the table $1.
func fillTables(
	ctx context.Context, db *sql.DB, setup []string, tables []table, indexes string,
	load func(context.Context, *sql.Conn, table), finish ...string,
) {
	defer db.Close()
	on := must(db.Conn(ctx))
	defer on.Close()
	execAll(ctx, on, setup...)
	for _, t := range tables {
		drop := texts(ctx, on, `SELECT drop_it FROM (`+indexes+`) AS i ORDER BY 1`, t.name)
		create := texts(ctx, on, `SELECT create_it FROM (`+indexes+`) AS i ORDER BY 1`, t.name)
		execAll(ctx, on, drop...)
		load(ctx, on, t)
		execAll(ctx, on, create...)
	}
	execAll(ctx, on, finish...)
}

// texts returns the first column of a query.
func texts(ctx context.Context, on *sql.Conn, query string, args ...any) (all []string) {
	rows := must(on.QueryContext(ctx, query, args...))
	defer rows.Close()
	for rows.Next() {
		var s string
		check(rows.Scan(&s))
		all = append(all, s)
	}
	check(rows.Err())
	return all
}

// dataFolder creates a data directory for a server.
func (b *bench) dataFolder() string { return must(os.MkdirTemp(b.folder, "data-")) }
