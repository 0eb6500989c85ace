package rig

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
	made   []string // names of the databases that Create created
}

func (e *postgresEngine) Name() string { return "postgres" }

func (e *postgresEngine) Create(ctx context.Context, dataset string) (string, bool) {
	u := Must(url.Parse(e.server))
	name := "holdfast_bench_" + dataset
	u.Path = "/" + name
	found := false
	Check(e.admin(ctx, func(c *pgx.Conn) error {
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

func (e *postgresEngine) Replace(ctx context.Context, address string) {
	name := Must(url.Parse(address)).Path[1:]
	Check(e.admin(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`)
		if err == nil {
			_, err = c.Exec(ctx, `CREATE DATABASE `+name)
		}
		return err
	}))
}

func (e *postgresEngine) DropAll(ctx context.Context) error {
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

func (e *postgresEngine) Connect(address string, writers int) *sql.DB {
	db := stdlib.OpenDB(*Must(pgx.ParseConfig(address)))
	db.SetMaxOpenConns(writers)
	db.SetMaxIdleConns(writers)
	return db
}

func (e *postgresEngine) Fill(ctx context.Context, address string, tables []Table) {
	// Only these tables are analyzed, because statistics about empty tables would lead to bad query plans.
	var names []string
	for _, t := range tables {
		names = append(names, t.Name)
	}
	setup := []string{"SET synchronous_commit = off", "SET maintenance_work_mem = '512MB'"}
	fillTables(ctx, e.Connect(address, 1), setup, tables, `SELECT 'DROP INDEX ' || i.indexrelid::regclass AS drop_it,
			pg_get_indexdef(i.indexrelid) AS create_it
		FROM pg_index AS i WHERE i.indrelid = $1::regclass
		AND NOT EXISTS (SELECT 1 FROM pg_constraint AS c WHERE c.conindid = i.indexrelid)`,
		e.copy, "VACUUM ANALYZE "+strings.Join(names, ", "),
		"CHECKPOINT") // otherwise the server might start a checkpoint during the measurement
}

func (e *postgresEngine) copy(ctx context.Context, on *sql.Conn, t Table) {
	// Without this setting, foreign keys are checked for every row. The error is ignored, because only some users may
	// change it.
	_, _ = on.ExecContext(ctx, "SET session_replication_role = replica")
	next, stop := iter.Pull(t.Rows)
	defer stop()
	source := pgx.CopyFromFunc(func() ([]any, error) {
		values, _ := next() // nil at the end, as pgx expects
		return values, nil
	})
	Check(on.Raw(func(c any) error {
		_, err := c.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{t.Name}, t.Columns, source)
		return err
	}))
}
