package rig

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

const batchRows = 50_000 // number of rows in one transaction

type sqliteEngine struct{ folder string }

func (e *sqliteEngine) Name() string { return "sqlite" }

func (e *sqliteEngine) Create(_ context.Context, dataset string) (string, bool) {
	path := filepath.Join(e.folder, dataset+".db")
	_, err := os.Stat(path)
	return path, err == nil
}

func (e *sqliteEngine) Replace(_ context.Context, path string) {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		Check(os.RemoveAll(path + suffix)) // the file need not exist
	}
}

// DropAll does nothing, because the caller deletes the folder with the databases unless the datasets are kept.
func (e *sqliteEngine) DropAll(context.Context) error { return nil }

func (e *sqliteEngine) Connect(path string, _ int) *sql.DB {
	db := sqliteFile(path, "busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)")
	db.SetMaxOpenConns(1) // SQLite allows only one writer
	return db
}

func sqliteFile(path string, pragmas ...string) *sql.DB {
	query := url.Values{"_pragma": pragmas}.Encode()
	return Must(sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query))
}

func (e *sqliteEngine) Fill(ctx context.Context, path string, tables []Table) {
	db := sqliteFile(path,
		"journal_mode(WAL)", "synchronous(OFF)", "foreign_keys(0)", "cache_size(-1000000)", "temp_store(MEMORY)")
	fillTables(ctx, db, nil, tables, `SELECT 'DROP ' || type || ' ' || name AS drop_it, sql AS create_it
		FROM sqlite_master WHERE type IN ('index', 'trigger') AND tbl_name = $1 AND sql IS NOT NULL`,
		e.insert, "PRAGMA wal_checkpoint(TRUNCATE)")
}

func (e *sqliteEngine) insert(ctx context.Context, on *sql.Conn, t Table) {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(t.Columns)), ", ")
	st := Must(on.PrepareContext(ctx,
		fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", t.Name, strings.Join(t.Columns, ", "), marks)))
	defer st.Close()
	execAll(ctx, on, "BEGIN")
	n := 0
	for values := range t.Rows {
		Must(st.ExecContext(ctx, values...))
		if n++; n%batchRows == 0 {
			execAll(ctx, on, "COMMIT", "BEGIN")
		}
	}
	execAll(ctx, on, "COMMIT")
}
