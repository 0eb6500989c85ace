package replica

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
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Position is a revision in one history of the database. The history changes when
// a standby is promoted that had not received everything, or when a back-up is
// restored: then the same revision numbers are given to other changes. So revisions
// in two histories cannot be compared.
type Position struct {
	History  int64 // how many changes of the history this process has seen
	Revision int64
}

// A history identifies a database and its past. It consists of the system
// identifier of the PostgreSQL installation, the database in it, the table of the
// revision, and the timeline. The timeline changes when a standby is promoted or an
// archive is recovered. Two databases that have the same history have the same past
// up to the moment at which one of them was replaced by a promoted standby.
type history string

// historyName is an SQL expression for the history of the database. historyNameWithout
// is the expression for servers that do not allow reading their control data.
const (
	historyName = `concat_ws('/', (SELECT system_identifier FROM pg_control_system()), ` + databaseName + `,
		substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))`
	historyNameWithout = `concat_ws('/', ` + databaseName + `)`
	databaseName       = `(SELECT oid FROM pg_database WHERE datname = current_database()),
		CAST(to_regclass('revision') AS oid)`
)

// leftBehindBy reports whether other continues the history h. If so, a promoted
// standby has replaced the server that still has h.
func (h history) leftBehindBy(other history) bool {
	cut := func(h history) (place, timeline string) {
		i := strings.LastIndexByte(string(h), '/')
		return string(h[:i+1]), string(h[i+1:])
	}
	place, timeline := cut(h)
	otherPlace, otherTimeline := cut(other)
	return place == otherPlace && len(timeline) == len(otherTimeline) && timeline < otherTimeline
}

// A historyWatch checks that the database still has the history that this process
// knows. The connections of the pool all lead to a server that has this history.
// The connections of the replica discover other histories.
type historyWatch struct {
	expression string                  // historyName or historyNameWithout
	newest     atomic.Pointer[history] // newest history seen; nil until Start has returned
	known      atomic.Pointer[history] // the newest history, set once all leases in the previous one have ended
	changes    atomic.Int64            // how often the history has changed
	pool       *engine.Connector       // for reads and writes

	// Replica.renewing guards the fields below.
	since    time.Time // when the newest history was first seen
	revision int64     // newest revision that this process has read
	event    int64     // newest event that this process has read
}

// noHistory is a history that no database has.
var noHistory history

// An observation is the state of the database that a heartbeat reads.
type observation struct {
	history         history
	revision, event int64
}

// HistoryChanges returns how often the history of the database has changed since this
// process started.
func (r *Replica) HistoryChanges() int64 { return r.past.changes.Load() }

// validate returns a function that returns an error if a new session must not be
// used. It refuses a server that a promoted standby has replaced, even if the server
// accepts writes. Sessions that are not for heartbeats must have the known history.
func (h *historyWatch) validate(heartbeats bool) func(context.Context, *pgconn.PgConn) error {
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

// Start reads the history of the database. If the last process knew another one,
// replicas may still have leases in that history. Start then waits until those
// leases have ended.
func (r *Replica) Start(ctx context.Context) error {
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
			return r.hooks.Fault(err)
		}
	}
	age, err := r.record(ctx, found)
	if err != nil {
		return err
	}
	if wait := LeaseWait - age; wait > 0 {
		r.hooks.Log().InfoContext(ctx,
			"the database has another history than before; waiting for the leases of replicas to end",
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

// record stores the history of the database if it is new, and returns how long ago it
// was first stored. If no other history was stored before, the result is longer than
// any lease.
func (r *Replica) record(ctx context.Context, found history) (age time.Duration, _ error) {
	clock := engine.Postgres.Clock
	_, err := r.db.ExecContext(ctx, `
		INSERT INTO history (id, name, rev, since_ms) SELECT 1, $1, rev, 0 FROM revision WHERE id = $2
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, rev = excluded.rev, since_ms = `+clock+`
		WHERE history.name <> excluded.name`, string(found), GrantsRow)
	var ms int64
	if err == nil {
		err = r.db.QueryRowContext(ctx, `SELECT `+clock+` - since_ms FROM history WHERE id = 1`).Scan(&ms)
	}
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "42P01" { // a back-up is being restored, and its schema does not have the table
		return LeaseWait, nil
	}
	return time.Duration(ms) * time.Millisecond, r.hooks.Fault(err)
}

// check compares what a heartbeat has read with the known history. If the history has
// changed, all cached data is invalid. check then returns an outage until no replica
// has a lease in the previous history, because such a replica may still allow requests
// that the new history refuses.
func (r *Replica) check(ctx context.Context, found observation) error {
	h := &r.past
	if newest := *h.newest.Load(); found.history != newest || found.revision < h.revision {
		if err := r.changeHistory(ctx, newest, found); err != nil {
			return err
		}
	}
	h.revision, h.event = found.revision, found.event
	if time.Since(h.since) < LeaseWait {
		return fault.Outage("the database",
			errors.New("its history has changed, and leases in the one before have to end first"))
	}
	h.known.Store(&found.history)
	return nil
}

// changeHistory drops everything that this process has read in the previous history. It
// also closes the connections, because they lead to the server that was replaced.
func (r *Replica) changeHistory(ctx context.Context, before history, found observation) error {
	if _, err := r.record(ctx, found.history); err != nil {
		return err
	}
	began := found.revision
	if found.history != before { // other replicas may have made changes since the new history began
		err := r.db.QueryRowContext(ctx, `SELECT rev FROM history WHERE id = 1`).Scan(&began)
		if err != nil {
			return r.hooks.Fault(err)
		}
	}
	h := &r.past
	h.since = time.Now()
	h.changes.Add(1)          // must come before any connection to the new history
	h.known.Store(&noHistory) // no connections for reads and writes until the leases have ended
	h.newest.Store(&found.history)
	r.lease.began.Store(nil)
	h.pool.CloseAll()
	r.mu.Lock()
	r.peers = map[string]peer{}
	r.mu.Unlock()
	r.revision = -1
	r.hooks.HistoryChanged()
	r.logChange(ctx, before, began, found)
	return nil
}

// logChange logs, for the operator, which revisions and events are lost. It
// compares the database with the newest ones that this process has read. began is
// the revision at which the new history was first seen.
func (r *Replica) logChange(ctx context.Context, before history, began int64, found observation) {
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
	r.hooks.Log().Log(ctx, level, "the history of the database has changed; everything that was cached is dropped",
		"lost", lost, "before", before, "now", found.history)
}
