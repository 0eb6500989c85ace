package rig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// An Engine is a kind of database on which the measurements run.
type Engine interface {
	Name() string

	// Create returns the address of the database for a dataset, and whether the database already exists from an
	// earlier run.
	Create(ctx context.Context, dataset string) (url string, found bool)

	// Replace replaces the database by an empty one.
	Replace(ctx context.Context, url string)

	// Fill loads rows into tables. To be fast, it drops the indexes of the tables and creates them again afterwards.
	// Triggers do not run, so there is no record of past changes for the loaded grants.
	Fill(ctx context.Context, url string, tables []Table)

	// Connect opens the database. Commits on it are as durable as commits by the store.
	Connect(url string, writers int) *sql.DB

	// DropAll deletes the databases that Create created, unless the datasets are kept for later runs.
	DropAll(ctx context.Context) error
}

// EmptyDatabase returns the address of an empty database.
func EmptyDatabase(ctx context.Context, e Engine, name string) string {
	url, found := e.Create(ctx, name)
	if found {
		e.Replace(ctx, url)
	}
	return url
}

// OpenEngine returns the engine with the name sqlite or postgres.
func (b *Bench) OpenEngine(name string) (Engine, error) {
	folder := b.Folder
	if b.KeptDatasets != "" {
		folder = b.KeptDatasets
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
	return &postgresEngine{server: server, keep: b.KeptDatasets != ""}, nil
}

// execAll executes the statements on a connection.
func execAll(ctx context.Context, on *sql.Conn, statements ...string) {
	for _, s := range statements {
		if _, err := on.ExecContext(ctx, s); err != nil {
			Check(fmt.Errorf("%s: %w", s, err))
		}
	}
}

// fillTables executes the statements in setup on one connection, and then fills the tables over it. Before it calls
// load for a table, it drops the indexes of the table, and afterwards it creates them again. indexes is a query that
// returns two columns: the statements to drop and to create the indexes of the table $1.
func fillTables(
	ctx context.Context, db *sql.DB, setup []string, tables []Table, indexes string,
	load func(context.Context, *sql.Conn, Table), finish ...string,
) {
	defer db.Close()
	on := Must(db.Conn(ctx))
	defer on.Close()
	execAll(ctx, on, setup...)
	for _, t := range tables {
		drop := texts(ctx, on, `SELECT drop_it FROM (`+indexes+`) AS i ORDER BY 1`, t.Name)
		create := texts(ctx, on, `SELECT create_it FROM (`+indexes+`) AS i ORDER BY 1`, t.Name)
		execAll(ctx, on, drop...)
		load(ctx, on, t)
		execAll(ctx, on, create...)
	}
	execAll(ctx, on, finish...)
}

// texts returns the first column of a query's result.
func texts(ctx context.Context, on *sql.Conn, query string, args ...any) (values []string) {
	rows := Must(on.QueryContext(ctx, query, args...))
	defer rows.Close()
	for rows.Next() {
		var s string
		Check(rows.Scan(&s))
		values = append(values, s)
	}
	Check(rows.Err())
	return values
}
