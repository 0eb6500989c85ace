package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

const (
	sqliteReaders = 8
	lockPatience  = time.Second
)

var sqliteEngine = Engine{
	name:    "sqlite",
	schema:  sqliteSchema,
	failure: sqliteFailure,
	Param:   func(int) string { return "?" }, // the driver looks up the name of every one that has one, from the first on
	Clock:   `CAST(unixepoch('subsec') * 1000 AS INTEGER)`,
	Unnest: func(q *Query, values any) string {
		b, _ := json.Marshal(values) // strings and numbers cannot fail
		return `(SELECT key AS i, value AS v FROM json_each(` + q.Arg(string(b)) + `))`
	},
	Lookup: func(table, condition string) string { return ` CROSS JOIN ` + table + ` AS t ON ` + condition },
}

// sqliteSchema writes a migration in SQLite's words. The key of a row is its
// rowid, which ends every index anyway.
func sqliteSchema(text string) string {
	text = onlyFor("sqlite", text)
	text = strings.NewReplacer(
		"seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "seq INTEGER PRIMARY KEY AUTOINCREMENT",
		"BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY",
		"BYTEA", "BLOB",
		"  PRIMARY KEY (kind, grp, shard)\n)", "  PRIMARY KEY (kind, grp, shard)\n) WITHOUT ROWID",
		"  PRIMARY KEY (key, seg)\n)", "  PRIMARY KEY (key, seg)\n) WITHOUT ROWID",
		"  PRIMARY KEY (grp, chunk)\n)", "  PRIMARY KEY (grp, chunk)\n) WITHOUT ROWID",
		"  PRIMARY KEY (package, root, advisory)\n)", "  PRIMARY KEY (package, root, advisory)\n) WITHOUT ROWID",
		"  PRIMARY KEY (chunk, package)\n)", "  PRIMARY KEY (chunk, package)\n) WITHOUT ROWID",
	).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "CREATE INDEX") {
			lines[i] = strings.Replace(line, ", seg)", ")", 1)
		}
	}
	return strings.Join(lines, "\n")
}

// openSQLite opens the file at path, creating it and its folder if need be. It
// fails if another process has it open: who may do what is kept in memory, and
// two processes would not learn of each other's changes.
func (s *DB) openSQLite(ctx context.Context, path string) error {
	s.Engine = sqliteEngine
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := s.lockFile(path + ".lock"); err != nil {
		return err
	}
	if err := createPrivate(path); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	// Were the file moved away, another connection would make an empty one: rw.
	address := "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=rw&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)"
	// An import changes many pages again and again: the writer keeps them, and
	// merges the log when it is worth it.
	writer, err := sql.Open("sqlite",
		address+"&_pragma=cache_size(-32768)&_pragma=wal_autocheckpoint(32768)&_txlock=immediate")
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	s.close = append(s.close, writer.Close)
	writer.SetMaxOpenConns(1)
	if err := s.migrate(ctx, writer, goose.DialectSQLite3); err != nil {
		return err
	}
	if s.read, err = sql.Open("sqlite", address+"&_pragma=cache_size(-16384)&_pragma=query_only(1)"); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	s.stmts.on = s.read
	s.close = append(s.close, s.read.Close, s.stmts.close)
	s.read.SetMaxOpenConns(sqliteReaders)
	s.read.SetMaxIdleConns(sqliteReaders)
	on, err := writer.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	s.close = append(s.close, on.Close)
	g := newBatcher(s, on)
	s.commit, s.close = g, append(s.close, g.stop)
	return nil
}

// private makes the file, for its owner alone, if it is not there; SQLite gives
// its log the same permissions.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// lockFile holds a lock on a file of that name until the store is closed. The
// system drops it with the process, however that ends.
func (s *DB) lockFile(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	s.close = append(s.close, f.Close)
	// A process that is ending has it for a moment longer, and so has a child that this one is starting.
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockPatience / 50) {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is locked: another holdfastd is using this database", name)
		}
	}
}

func sqliteFailure(err error) failure {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		if errors.Is(err, errClosed) {
			return outage
		}
		return broken
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_UNIQUE, lib.SQLITE_CONSTRAINT_PRIMARYKEY, lib.SQLITE_CONSTRAINT_ROWID:
		return duplicate
	case lib.SQLITE_CONSTRAINT_FOREIGNKEY:
		return dangling
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN,
		lib.SQLITE_READONLY, lib.SQLITE_PROTOCOL, lib.SQLITE_NOMEM, lib.SQLITE_PERM:
		return outage
	}
	return broken
}
