package store

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A carriedTx is a transaction that a context carries. Every read and every write with
// that context happens in the transaction, although the code that makes them would
// otherwise use a transaction of its own for each write.
type carriedTx struct {
	tx       *Tx
	commits  bool  // whether the transaction is committed; false for a simulation
	conflict error // an error after which the transaction must be retried, even if the code that received it ignored it
	failed   error // error of the first write that failed, if the transaction would be committed
}

type carriedKey struct{}

// with returns a context that carries the transaction.
func (c *carriedTx) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, carriedKey{}, c)
}

// carriedIn returns the transaction that a context carries, or nil.
func carriedIn(ctx context.Context) *carriedTx {
	c, _ := ctx.Value(carriedKey{}).(*carriedTx)
	return c
}

// OutsideTransaction returns a context whose reads do not happen in the transaction
// that ctx carries. They see the state before the transaction. Code that fills a cache
// must read with it. On SQLite it must not be used for writes, which would wait for the
// transaction.
func OutsideTransaction(ctx context.Context) context.Context {
	if carriedIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, carriedKey{}, (*carriedTx)(nil))
}

// InTransaction reports whether a context carries a transaction: see Combine and Simulate.
func InTransaction(ctx context.Context) bool { return carriedIn(ctx) != nil }

// errFailed is the error of a write in a transaction in which another write has failed.
var errFailed = errors.New("an earlier write of the transaction has failed")

// Combine runs f, and commits everything that f writes with its context in one
// transaction, or nothing. It does once for all writes what Write does for each: events
// are written in the order of the changes; budgets limit what the transaction adds
// altogether; the access of the request must still exist at the commit; and Combine
// returns when all replicas have applied the changes to grants. With validate_only,
// everything is checked and then rolled back.
//
// If a write fails, nothing is committed, even if f ignores the error. If the database
// reports a conflict, or a row has changed between a read and a write, Combine runs f
// again. It returns fault.Aborted if that does not help.
//
// Reads with the context of f see the writes before them. On PostgreSQL they also see
// the changes that others commit in the meantime, as single writes do. Code that fills a
// cache must read with OutsideTransaction. Decisions about access are made from memory,
// so they do not consider changes to grants that f makes.
//
// On SQLite no other write can run until f returns. f must not use its context in several
// goroutines at the same time. In a transaction that ctx already carries, Combine only
// calls f.
func (s *DB) Combine(ctx context.Context, f func(context.Context) error) error {
	if carriedIn(ctx) != nil {
		return f(ctx)
	}
	err := s.Write(ctx, func(t *Tx) error {
		c := &carriedTx{tx: t, commits: true}
		err := f(c.with(ctx))
		switch {
		case c.conflict != nil:
			return c.conflict
		case errors.Is(c.failed, ErrStale):
			return errRepeat
		case err != nil:
			return err
		}
		return c.failed
	})
	if errors.Is(err, errRepeat) {
		return fault.New(fault.Aborted, "Aborted: others have changed it at the same time; try again")
	}
	return err
}

// errRepeat makes Combine run again, because another transaction has changed a row
// between a read and a write.
var errRepeat = errors.New("a row has changed since it was read")

// A Simulation is a transaction in which changes are made to see their effects. It
// is always rolled back.
type Simulation struct{ carried *carriedTx }

// Simulate runs f, and runs it again if the database reports a conflict. With the
// context that f receives, every read and every write of this database happens in
// one transaction. Writes pass the same checks as outside of a simulation: the
// constraints of the database and the budgets. The transaction is rolled back even
// if f returns nil: no event and no revision is written, and no cache is cleared.
// Code that fills a cache must read with OutsideTransaction.
//
// On SQLite no other write can run until f returns, so f must be quick. On
// PostgreSQL f sees one state of the database. f must not use its context in
// several goroutines at the same time.
func (s *DB) Simulate(ctx context.Context, f func(context.Context, *Simulation) error) error {
	err := s.Write(ctx, func(t *Tx) error {
		if err := t.beginSimulation(ctx); err != nil {
			return err
		}
		if err := t.hasAccess(ctx); err != nil {
			return err
		}
		c := &carriedTx{tx: t}
		err := f(c.with(ctx), &Simulation{c})
		if c.conflict != nil {
			return c.conflict
		}
		if err == nil {
			err = errSimulated
		}
		return err
	})
	if errors.Is(err, errSimulated) {
		return nil
	}
	return err
}

// errSimulated makes the transaction of a simulation roll back.
var errSimulated = errors.New("simulated")

func (t *Tx) beginSimulation(ctx context.Context) error {
	if t.DB.Engine.Postgres { // f compares the states before and after, so it must not see the changes of other writers
		if _, err := t.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, `SAVEPOINT simulation`)
	return err
}

// Changes returns the changes to grants that replicas would have to apply.
func (sim *Simulation) Changes() []GrantChange { return slices.Clone(sim.carried.tx.changes) }

// Undo reverts the writes. Later reads see the state before the simulation.
func (sim *Simulation) Undo(ctx context.Context) error {
	_, err := sim.carried.tx.Exec(ctx, `ROLLBACK TO simulation`)
	return err
}

// write runs a write in the transaction.
func (c *carriedTx) write(ctx context.Context, f func(*Tx) error) error {
	if c.failed != nil {
		return errFailed
	}
	err := ctx.Err() // the writer of SQLite ignores the context
	if err == nil {
		err = f(c.tx)
	}
	if c.commits {
		err = c.keep(ctx, err)
	} else {
		err = c.drop(ctx, err)
	}
	return c.note(err)
}

// keep ends a write of a transaction that will be committed. It sends the statements
// whose results later writes may read. Events and counters are written with the commit,
// because their locks are held until then.
func (c *carriedTx) keep(ctx context.Context, err error) error {
	t := c.tx
	if on, ok := t.on.(*engine.PostgresTx); ok && err == nil && len(t.queued) > 0 {
		_, err = on.ExecAll(ctx, t.queued)
		t.queued = nil
	}
	t.sumIncrements()
	c.failed = err
	return err
}

// drop ends a write of a simulation. Its events are dropped. The statements that
// PostgreSQL would get with the commit are sent immediately.
func (c *carriedTx) drop(ctx context.Context, err error) error {
	t := c.tx
	if err == nil {
		err = t.keepBudgets(ctx)
	}
	t.events = nil
	if on, ok := t.on.(*engine.PostgresTx); ok && err == nil {
		if statements := t.closing(); len(statements) > 0 {
			_, err = on.ExecAll(ctx, statements)
		}
	}
	t.queued, t.increments = nil, nil
	return err
}

// note records err if it is a conflict, after which the transaction must be
// retried, and returns err.
func (c *carriedTx) note(err error) error {
	if c.tx.DB.Engine.Failure(err) == engine.Conflict {
		c.conflict = err
	}
	return err
}

func (c *carriedTx) rows(
	ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error),
) error {
	return c.note(c.tx.Rows(ctx, query, args, f))
}
