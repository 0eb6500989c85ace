package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

const batchRows = 50_000 // rows of one transaction

type sqliteEngine struct{ folder string }

func (e *sqliteEngine) name() string { return "sqlite" }

func (e *sqliteEngine) create(_ context.Context, dataset string) (string, bool, error) {
	path := filepath.Join(e.folder, dataset+".db")
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	return path, err == nil, nil
}

func (e *sqliteEngine) replace(_ context.Context, path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (e *sqliteEngine) dropAll(context.Context) error { return nil } // the folder is deleted, or kept

func (e *sqliteEngine) connect(path string, _ int) (*sql.DB, error) {
	db, err := sqliteFile(path, "busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)")
	if err == nil {
		db.SetMaxOpenConns(1) // SQLite has one writer
	}
	return db, err
}

func sqliteFile(path string, pragmas ...string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma="+strings.Join(pragmas,
		"&_pragma="))
}

func (e *sqliteEngine) fill(ctx context.Context, path string, tables []table) error {
	db, err := sqliteFile(path,
		"journal_mode(WAL)", "synchronous(OFF)", "foreign_keys(0)", "cache_size(-1000000)", "temp_store(MEMORY)")
	if err != nil {
		return err
	}
	return fillTables(ctx, db, nil, tables, `SELECT 'DROP INDEX ' || name AS drop_it, sql AS create_it
		FROM sqlite_master WHERE type = 'index' AND tbl_name = $1 AND sql IS NOT NULL`,
		e.insert, "PRAGMA wal_checkpoint(TRUNCATE)")
}

func (e *sqliteEngine) insert(ctx context.Context, on *sql.Conn, t table) error {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ")
	st, err := on.PrepareContext(ctx,
		fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", t.name, strings.Join(t.columns, ", "), marks))
	if err != nil {
		return err
	}
	defer st.Close()
	return insertAll(ctx, on, st, t)
}

func insertAll(ctx context.Context, on *sql.Conn, st *sql.Stmt, t table) error {
	if err := execAll(ctx, on, "BEGIN"); err != nil {
		return err
	}
	n := 0
	for values := range t.rows {
		if _, err := st.ExecContext(ctx, values...); err != nil {
			return err
		}
		if n++; n%batchRows == 0 {
			if err := execAll(ctx, on, "COMMIT", "BEGIN"); err != nil {
				return err
			}
		}
	}
	return execAll(ctx, on, "COMMIT")
}
