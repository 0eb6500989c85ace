package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A Position is a revision in one of the histories that this process has seen of the
// database. Revisions of two histories cannot be compared: after a standby was promoted
// that had not received everything, or a back-up was restored, the same numbers are given
// to other changes.
type Position struct {
	History  int64 // how often the history has changed, as far as this process knows
	Revision int64
}

// A history names the past of a database: the system that PostgreSQL was initialized
// as, the database in it, the table of the revision, and the timeline, which changes when
// a standby is promoted or an archive is recovered. Two databases with the same name have
// the same past up to the moment at which one of them was left behind.
type history string

// historyName is the history of the database that a statement runs in, as an
// expression. historyNameWithout is for servers that do not tell their own state.
const (
	historyName = `concat_ws('/', (SELECT system_identifier FROM pg_control_system()), ` + databaseName + `,
		substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))`
	historyNameWithout = `concat_ws('/', ` + databaseName + `)`
	databaseName       = `(SELECT oid FROM pg_database WHERE datname = current_database()),
		CAST(to_regclass('revision') AS oid)`
)

// leftBehindBy reports whether other continues the history, so that the server that still has
// this one was replaced by a standby.
func (h history) leftBehindBy(other history) bool {
	cut := func(h history) (place, timeline string) {
		i := strings.LastIndexByte(string(h), '/')
		return string(h[:i+1]), string(h[i+1:])
	}
	place, timeline := cut(h)
	otherPlace, otherTimeline := cut(other)
	return place == otherPlace && len(timeline) == len(otherTimeline) && timeline < otherTimeline
}

// A historian watches that the database still has the history that this process
// knows. The connections of the pool are all to a server with that history; those of
// the replica find out about others.
type historian struct {
	expression string                  // historyName, or what can be had of it
	newest     atomic.Pointer[history] // that was seen; nil until begin has returned
	known      atomic.Pointer[history] // likewise, once the leases in the one before have ended
	changes    atomic.Int64            // how often it has changed
	pool       *connector              // of reads and writes

	// The rest is guarded by replica.renewing.
	since    time.Time // when the newest history was seen
	revision int64     // the newest that this process knows of
	event    int64     // the newest event that this process knows of
}

// nowhere is the history of no database.
var nowhere history

// A sighting is what a heartbeat learns about the database.
type sighting struct {
	history         history
	revision, event int64
}

// History returns how often the history of the database has changed, as far as this
// process knows. A cache of what has a version remembers it beside the version.
func (s *DB) History() int64 {
	if s.replica == nil {
		return 0
	}
	return s.replica.past.changes.Load()
}

// validate returns the function that decides whether a new session can be used.
// A server that was left behind is refused even if it takes writes. Sessions that are not
// for heartbeats must have the history that is known.
func (h *historian) validate(heartbeats bool) func(context.Context, *pgconn.PgConn) error {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		newest, known := h.newest.Load(), h.known.Load()
		name := `''`
		if newest != nil {
			name = `CASE WHEN pg_is_in_recovery() THEN '' ELSE ` + h.expression + ` END`
		}
		results, err := conn.Exec(ctx, `SELECT current_setting('transaction_read_only'), `+name).ReadAll()
		if err != nil {
			return err
		}
		row := results[0].Rows[0]
		found := history(row[1])
		switch {
		case string(row[0]) != "off":
			return errors.New("the server takes no writes: it is a standby")
		case newest == nil:
			return nil
		case found.leftBehindBy(*newest):
			return fmt.Errorf("the server was replaced by another: its history is %s, and that one continues as %s",
				found, *newest)
		case !heartbeats && (found != *newest || *known != *newest):
			return errors.New("the history of the database has changed, and is about to be read")
		}
		return nil
	}
}

// begin learns which history the database has. If that is not the one that the last
// process knew, replicas may still have leases in the one before: it waits until they
// have ended.
func (r *replica) begin(ctx context.Context) error {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	h := &r.past
	var found history
	for _, h.expression = range []string{historyName, historyNameWithout} {
		err := r.db.QueryRowContext(ctx, `SELECT `+h.expression).Scan(&found)
		var e *pgconn.PgError
		if err == nil {
			break
		}
		if !errors.As(err, &e) || h.expression == historyNameWithout {
			return r.s.outcome(err)
		}
	}
	age, err := r.record(ctx, found)
	if err != nil {
		return err
	}
	if wait := leaseWait - age; wait > 0 {
		r.s.Log.InfoContext(ctx, "the database has another history than before; waiting for the leases of replicas to end",
			"history", found, "wait", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	h.known.Store(&found)
	h.newest.Store(&found)
	return nil
}

// record writes which history the database has, if that is new, and returns for how long
// it has been known; forever, if no other was known before.
func (r *replica) record(ctx context.Context, found history) (age time.Duration, _ error) {
	_, err := r.db.ExecContext(ctx, `
		INSERT INTO history (id, name, rev, since_ms) SELECT 1, $1, rev, 0 FROM revision WHERE id = 1
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, rev = excluded.rev, since_ms = `+r.s.Engine.Clock+`
		WHERE history.name <> excluded.name`, string(found))
	var ms int64
	if err == nil {
		err = r.db.QueryRowContext(ctx, `SELECT `+r.s.Engine.Clock+` - since_ms FROM history WHERE id = 1`).Scan(&ms)
	}
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "42P01" { // a back-up is being restored whose schema does not have the table
		return leaseWait, nil
	}
	return time.Duration(ms) * time.Millisecond, r.s.outcome(err)
}

// check compares what a heartbeat has found with what is known. If the history has
// changed, everything that is cached is void. check then returns an outage until the
// leases that replicas may have in the history before have ended: what such a replica
// still allows, no other one has refused yet.
func (r *replica) check(ctx context.Context, found sighting) error {
	h := &r.past
	if newest := *h.newest.Load(); found.history != newest || found.revision < h.revision {
		if err := r.change(ctx, newest, found); err != nil {
			return err
		}
	}
	h.revision, h.event = found.revision, found.event
	if time.Since(h.since) < leaseWait {
		return fault.Outage("the database",
			errors.New("its history has changed, and leases in the one before have to end first"))
	}
	h.known.Store(&found.history)
	return nil
}

// change drops everything that this process knows of the history before, and its
// connections, which are to a server that was left behind.
func (r *replica) change(ctx context.Context, before history, found sighting) error {
	if _, err := r.record(ctx, found.history); err != nil {
		return err
	}
	began := found.revision
	if found.history != before { // others may have made changes since
		err := r.db.QueryRowContext(ctx, `SELECT rev FROM history WHERE id = 1`).Scan(&began)
		if err != nil {
			return r.s.outcome(err)
		}
	}
	h := &r.past
	h.since = time.Now()
	h.changes.Add(1)        // before there are connections to it
	h.known.Store(&nowhere) // none for reads and writes until the leases have ended
	h.newest.Store(&found.history)
	r.lease.began.Store(nil)
	h.pool.closeAll()
	r.s.dropIdle()
	r.mu.Lock()
	r.peers = map[string]peer{}
	r.mu.Unlock()
	r.revision = -1
	r.s.clearCaches()
	r.s.budgets.forget()
	r.logChange(ctx, before, began, found)
	return nil
}

// logChange tells the operator what is gone, as far as this process knows. began is the
// revision at which the new history was first seen.
func (r *replica) logChange(ctx context.Context, before history, began int64, found sighting) {
	level, lost := slog.LevelWarn, "nothing that this replica knows of"
	if h := &r.past; began < h.revision || found.event < h.event {
		level, lost = slog.LevelError, ""
		if began < h.revision {
			lost = fmt.Sprintf("revisions %d to %d", began+1, h.revision)
		}
		if found.event < h.event {
			lost = strings.TrimPrefix(fmt.Sprintf("%s, events %d to %d", lost, found.event+1, h.event), ", ")
		}
	}
	r.s.Log.Log(ctx, level, "the history of the database has changed; everything that was cached is dropped",
		"lost", lost, "before", before, "now", found.history)
}
