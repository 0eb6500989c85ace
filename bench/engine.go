package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
)

// An engine is a database to measure on.
type engine interface {
	name() string

	// create returns the address of the database for a dataset, and whether it
	// is one that an earlier run has left.
	create(ctx context.Context, dataset string) (url string, found bool, _ error)

	// replace makes the database empty.
	replace(ctx context.Context, url string) error

	// fill loads tables as fast as it can: without indexes, which it makes
	// afterwards from what the schema said.
	fill(ctx context.Context, url string, tables []table) error

	// connect opens the database beside the store. A writer waits for the disk
	// like the store's.
	connect(url string, writers int) (*sql.DB, error)

	// dropAll removes what create has made, unless it is to be kept.
	dropAll(ctx context.Context) error
}

func (b *bench) open(name string) (engine, error) {
	folder := b.folder
	if b.keep != "" {
		folder = b.keep
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	if name == "sqlite" {
		return &sqliteEngine{folder: folder}, nil
	}
	server := os.Getenv("HOLDFAST_TEST_POSTGRES")
	if server == "" {
		return nil, fmt.Errorf("HOLDFAST_TEST_POSTGRES is not set: make bench sets it; or leave out postgres with -engines sqlite")
	}
	return &postgresEngine{server: server, keep: b.keep != ""}, nil
}

// execAll runs statements one after the other.
func execAll(ctx context.Context, on *sql.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := on.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
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

// dataFolder makes a folder for what a server keeps outside its database.
func (b *bench) dataFolder() (string, error) { return os.MkdirTemp(b.folder, "data-") }
