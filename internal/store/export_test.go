package store

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
)

// Tamper runs a statement that changes the database behind the store's back. No
// write may be running.
func (s *DB) Tamper(t testing.TB, statement string) {
	t.Helper()
	if _, err := s.Exec(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Occupy takes every PostgreSQL connection in the pool, and returns a function
// that releases them.
func (s *DB) Occupy(t testing.TB) (release func()) {
	t.Helper()
	var all []*sql.Conn
	for range engine.PostgresConns {
		on, err := s.db.Pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, on)
	}
	return func() {
		for _, on := range all {
			on.Close()
		}
	}
}

// Together runs up to 64 writes in one commit on SQLite, and returns their
// errors.
func (s *DB) Together(ctx context.Context, writes []func() error) []error {
	release := s.Hold(ctx)
	errs := make([]error, len(writes))
	var wg sync.WaitGroup
	for i, write := range writes {
		wg.Go(func() { errs[i] = write() })
	}
	s.AwaitWaiting(len(writes))
	release()
	wg.Wait()
	return errs
}

// Hold keeps the SQLite writer busy until the returned function is called.
func (s *DB) Hold(ctx context.Context) (release func()) {
	enter, leave := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.Write(ctx, func(*Tx) error { close(enter); <-leave; return nil })
	}()
	<-enter
	return func() { close(leave) }
}

// AwaitWaiting waits until n writes are queued for the SQLite writer.
func (s *DB) AwaitWaiting(n int) {
	for s.db.QueuedWrites() < n {
		runtime.Gosched()
	}
}

// WriteThen adds a group and then calls f, in one transaction.
func (s *DB) WriteThen(ctx context.Context, g resource.Group, f func() error) error {
	return s.writeThen(ctx, g, func(*Tx) error { return f() })
}

func (s *DB) writeThen(ctx context.Context, g resource.Group, f func(*Tx) error) error {
	return s.Write(ctx, func(t *Tx) error {
		_, err := t.Exec(ctx, `
			INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, kind, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, 0, 0, 0)`, append(TreeColumns(g.UID), g.Name, false)...)
		if err != nil {
			return err
		}
		if err := t.Count(ctx, "groups", g.UID, 1); err != nil {
			return err
		}
		return f(t)
	})
}

// ChangesKept is the smallest number of changes to grants that stay stored.
const ChangesKept = changesKept

// LeaseWait is a little longer than a lease, because the clocks of two processes may differ in
// speed.
const LeaseWait = replica.LeaseWait

// SkipChanges increases the revision as n changes to a role would.
func (s *DB) SkipChanges(ctx context.Context, n int) error {
	return s.Write(ctx, func(t *Tx) error {
		t.changes = make([]GrantChange, n)
		for i := range t.changes {
			t.changes[i].Role = resource.OwnerRole
		}
		return nil
	})
}

// WriteLater adds a group and queues, for the commit, a statement that the
// database refuses.
func (s *DB) WriteLater(ctx context.Context, g resource.Group) error {
	return s.writeThen(ctx, g, func(t *Tx) error {
		return t.Later(ctx, refused)
	})
}

// WriteRegardless adds a setting and then ignores that the database refuses
// another statement. It queues nothing for the commit.
func (s *DB) WriteRegardless(ctx context.Context) error {
	return s.Write(ctx, func(t *Tx) error {
		_, err := t.Exec(ctx, `INSERT INTO settings (name, value) VALUES ('a', '')`)
		_, _ = t.Exec(ctx, refused)
		return err
	})
}

const refused = `INSERT INTO counters (kind, grp, shard, n, children) VALUES (NULL, 1, 1, 1, 1)`

// Busy returns how many connections of the pool are in use.
func (s *DB) Busy() int { return s.db.Pool.Stats().InUse }

// Backend returns the id of the server process for the connection that is used next.
func (s *DB) Backend(ctx context.Context) (pid int, err error) {
	err = s.Row(ctx, `SELECT pg_backend_pid()`, nil, &pid)
	return pid, err
}

// An OpenEvent is an event in a transaction that has not ended.
type OpenEvent struct{ on *sql.Tx }

// OpenEvent begins a transaction that will record an event. The transaction
// already has its id.
func (s *DB) OpenEvent(t testing.TB) *OpenEvent {
	t.Helper()
	on, err := s.db.Pool.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err == nil {
		_, err = on.ExecContext(t.Context(), `SELECT pg_current_xact_id()`)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = on.Rollback() })
	return &OpenEvent{on}
}

// Record adds the event to the outbox, which gives it a number.
func (o *OpenEvent) Record(t testing.TB, id string) {
	t.Helper()
	_, err := o.on.ExecContext(t.Context(), `
		INSERT INTO outbox (id, type, subject, grp, actor, at_ms, before_json, after_json) 
			VALUES ($1, 'x.v1', 'x', '/', '{}', 0, '', '')`, id)
	if err != nil {
		t.Fatal(err)
	}
}

// End commits the transaction, or rolls it back.
func (o *OpenEvent) End(t testing.TB, commit bool) {
	t.Helper()
	end := o.on.Rollback
	if commit {
		end = o.on.Commit
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// The declarations below give plan_test.go access to the code that builds lists.

// Kinds contains the names of the tables that store resources.
var Kinds = kinds

// A Span is a part of the tree that one statement reads.
type Span = span

func Below(uid resource.UID) Span      { return span{below: uid} }
func ChildrenOf(uid resource.UID) Span { return span{children: uid} }
func OfSet(uids ...resource.UID) Span  { return span{set: uids} }

// A TestCondition is a filter of a list: the column has a value.
type TestCondition struct {
	Column string
	Value  any
	Flag   bool
}

func (q *Query) SetJoins(text string)                    { q.joins = text }
func (q *Query) SetName(name string)                     { q.name = name }
func (q *Query) SetClasses(classes ...resource.TagClass) { q.classes = classes }
func (q *Query) SetWhere(c TestCondition) {
	q.where = []Condition{{column: c.Column, value: c.Value, flag: c.Flag}}
}
func (q *Query) PlanPage(sp Span) string        { return q.page(sp) }
func (q *Query) PlanTotal(sp Span) string       { return q.total(sp) }
func (q *Query) PlanLateral(all []Span) string  { return q.lateral(all) }
func (q *Query) PlanKeys(sp Span, n int) string { return q.keys(sp, n) }
func (q *Query) PlanNeed() int                  { return q.need() }
func (q *Query) PlanCounters(all []Span) string { return q.counters(all) }
func (q *Query) PlanHeads(all []Span) string    { return q.heads(all) }
func (q *Query) PlanFetch(keys []int64) string  { return q.fetch(keys) }

// Named returns the statement that FindByPath runs. Each of the others returns the
// statement for the method that has the same name.
var (
	Named   = named
	NamesOf = namesOf
	Counts  = countsStatement
)

// AfterPrefix returns the end of the range of texts that begin with a prefix.
var AfterPrefix = afterPrefix

// PlanSearch returns the query that a search runs.
func PlanSearch(e engine.Engine, n NameSearch) Query { return n.query(e, infoKind(n.Table, n.Titled)) }
