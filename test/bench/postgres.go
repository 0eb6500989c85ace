package main

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

type postgresEngine struct {
	server string
	keep   bool
	made   []string // names of databases
}

func (e *postgresEngine) name() string { return "postgres" }

func (e *postgresEngine) create(ctx context.Context, dataset string) (string, bool) {
	u := must(url.Parse(e.server))
	name := "holdfast_bench_" + dataset
	u.Path = "/" + name
	found := false
	check(e.admin(ctx, func(c *pgx.Conn) error {
		if err := c.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_database WHERE datname = $1`,
			name).Scan(&found); err != nil || found {
			return err
		}
		_, err := c.Exec(ctx, `CREATE DATABASE `+name)
		return err
	}))
	e.made = append(e.made, name)
	return u.String(), found
}

func (e *postgresEngine) replace(ctx context.Context, address string) {
	name := must(url.Parse(address)).Path[1:]
	check(e.admin(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`)
		if err == nil {
			_, err = c.Exec(ctx, `CREATE DATABASE `+name)
		}
		return err
	}))
}

func (e *postgresEngine) dropAll(ctx context.Context) error {
	if e.keep {
		return nil
	}
	return e.admin(ctx, func(c *pgx.Conn) error {
		var errs []error
		for _, name := range e.made {
			_, err := c.Exec(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func (e *postgresEngine) admin(ctx context.Context, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, e.server)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

func (e *postgresEngine) connect(address string, writers int) *sql.DB {
	db := stdlib.OpenDB(*must(pgx.ParseConfig(address)))
	db.SetMaxOpenConns(writers)
	db.SetMaxIdleConns(writers)
	return db
}

func (e *postgresEngine) fill(ctx context.Context, address string, tables []table) {
	var names []string // and no others: statements would be planned for empty tables
	for _, t := range tables {
		names = append(names, t.name)
	}
	setup := []string{"SET synchronous_commit = off", "SET maintenance_work_mem = '512MB'"}
	fillTables(ctx, e.connect(address, 1), setup, tables, `SELECT 'DROP INDEX ' || i.indexrelid::regclass AS drop_it,
			pg_get_indexdef(i.indexrelid) AS create_it
		FROM pg_index AS i WHERE i.indrelid = $1::regclass
		AND NOT EXISTS (SELECT 1 FROM pg_constraint AS c WHERE c.conindid = i.indexrelid)`,
		e.copy, "VACUUM ANALYZE "+strings.Join(names, ", "), "CHECKPOINT") // otherwise the server might, while we measure
}

func (e *postgresEngine) copy(ctx context.Context, on *sql.Conn, t table) {
	// Foreign keys are checked for every row, unless the user may turn that off.
	_, _ = on.ExecContext(ctx, "SET session_replication_role = replica")
	next, stop := iter.Pull(t.rows)
	defer stop()
	source := pgx.CopyFromFunc(func() ([]any, error) {
		values, _ := next() // nil at the end, as pgx wants it
		return values, nil
	})
	check(on.Raw(func(c any) error {
		_, err := c.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, source)
		return err
	}))
}
