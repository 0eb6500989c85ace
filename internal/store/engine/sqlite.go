package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-dev/holdfast/internal/store/schema"
)

const (
	sqliteReaders = 8
	lockWait      = time.Second
)

// SQLite is the Engine for SQLite.
var SQLite = Engine{
	name:    "sqlite",
	failure: sqliteFailure,
	// without a number, because the driver finds a numbered parameter by a linear search
	Param: func(int) string { return "?" },
	Clock: `CAST(unixepoch('subsec') * 1000 AS INTEGER)`,
	Unnest: func(q Args, values any) string {
		b, _ := json.Marshal(values) // Marshal cannot fail for strings and numbers
		return `(SELECT key AS i, value AS v FROM json_each(` + q.Arg(string(b)) + `))`
	},
	Lookup: func(table, condition string) string { return ` CROSS JOIN ` + table + ` AS t ON ` + condition },
}

// OpenSQLite opens the file at path, creates it and its folder if necessary, and
// migrates it up to the schema numbered last, or the newest one if last is 0. It fails
// if another process has the file open, because grants are cached in memory, and two
// processes would not learn of each other's changes. OpenSQLite calls committed after
// every commit with the highest revision that its transactions wrote.
func OpenSQLite(
	ctx context.Context, path string, last int64, committed func(ctx context.Context, revision int64),
) (*Database, error) {
	d := &Database{Engine: SQLite}
	if err := d.openSQLite(ctx, path, last, committed); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Database) openSQLite(
	ctx context.Context, path string, last int64, committed func(ctx context.Context, revision int64),
) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := d.lockFile(path + ".lock"); err != nil {
		return err
	}
	if err := createPrivate(path); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	// mode=rw does not create a file. If the file is moved away, a new connection fails
	// instead of creating an empty database.
	address := sqliteAddress(path) + "?mode=rw&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)"
	// An import changes many pages repeatedly. The writer keeps these pages in its
	// cache, and merges the log into the database only when the log has grown.
	writer, err := sql.Open("sqlite",
		address+"&_pragma=cache_size(-32768)&_pragma=wal_autocheckpoint(32768)&_txlock=immediate")
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	d.close = append(d.close, writer.Close)
	writer.SetMaxOpenConns(1)
	if err := schema.Migrate(ctx, writer, schema.SQLite, last, d.Engine.Fault); err != nil {
		return err
	}
	if d.Pool, err = sql.Open("sqlite", address+"&_pragma=cache_size(-16384)&_pragma=query_only(1)"); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	d.prepared.on = d.Pool
	d.close = append(d.close, d.Pool.Close, d.prepared.close)
	d.Pool.SetMaxOpenConns(sqliteReaders)
	d.Pool.SetMaxIdleConns(sqliteReaders)
	on, err := writer.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	d.close = append(d.close, on.Close)
	b := newBatcher(on, committed)
	d.committer, d.close = b, append(d.close, b.stop)
	return nil
}

// ReadSQLite opens the file at path for reads. It neither changes the schema nor locks
// the file, so that a server can use it at the same time.
func ReadSQLite(path string) (*Database, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	pool, err := sql.Open("sqlite", sqliteAddress(path)+
		"?mode=rw&_pragma=busy_timeout(5000)&_pragma=query_only(1)") // rw, because reading the log needs to write its index
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return readOnly(SQLite, pool), nil
}

func readOnly(e Engine, pool *sql.DB) *Database {
	d := &Database{Engine: e, Pool: pool}
	d.prepared.on = pool
	d.close = append(d.close, pool.Close, d.prepared.close)
	return d
}

func sqliteAddress(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// createPrivate creates the file, readable by its owner only, if it does not exist.
// SQLite gives its log the same permissions.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// lockFile holds a lock on the named file until the database is closed. The system
// releases the lock when the process ends, even after a crash.
func (d *Database) lockFile(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	d.close = append(d.close, f.Close)
	// The lock may still be held for a moment by a process that is ending, or by a
	// child process that this one is starting.
	for end := time.Now().Add(lockWait); ; time.Sleep(lockWait / 50) {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is locked: another holdfastd is using this database", name)
		}
	}
}

func sqliteFailure(err error) Failure {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		if errors.Is(err, errClosed) {
			return Outage
		}
		return Bug
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_UNIQUE, lib.SQLITE_CONSTRAINT_PRIMARYKEY, lib.SQLITE_CONSTRAINT_ROWID:
		return Duplicate
	case lib.SQLITE_CONSTRAINT_FOREIGNKEY:
		return Dangling
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN,
		lib.SQLITE_READONLY, lib.SQLITE_PROTOCOL, lib.SQLITE_NOMEM, lib.SQLITE_PERM:
		return Outage
	}
	return Bug
}
