package store

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// A Simulation is a transaction in which changes are made to see their effects. It
// is always rolled back.
type Simulation struct {
	tx       *Tx
	conflict error // an error after which the transaction must be retried, even if the code that received it ignored it
}

type simulationKey struct{}

// Simulate runs f, and runs it again if the database reports a conflict. With the
// context that f receives, every read and every write of this database happens in
// one transaction. Writes pass the same checks as outside of a simulation: the
// constraints of the database and the budgets. The transaction is rolled back even
// if f returns nil: no event and no revision is written, and no cache is cleared.
// Code that fills a cache must read with OutsideSimulation.
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
		sim := &Simulation{tx: t}
		err := f(context.WithValue(ctx, simulationKey{}, sim), sim)
		if sim.conflict != nil {
			return sim.conflict
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
func (sim *Simulation) Changes() []GrantChange { return slices.Clone(sim.tx.changes) }

// Undo reverts the writes. Later reads see the state before the simulation.
func (sim *Simulation) Undo(ctx context.Context) error {
	_, err := sim.tx.Exec(ctx, `ROLLBACK TO simulation`)
	return err
}

// OutsideSimulation returns a context whose reads and writes are not part of a
// simulation.
func OutsideSimulation(ctx context.Context) context.Context {
	if simulationIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, simulationKey{}, (*Simulation)(nil))
}

// InSimulation reports whether a context belongs to a simulation.
func InSimulation(ctx context.Context) bool { return simulationIn(ctx) != nil }

// simulationIn returns the simulation that a context belongs to, or nil.
func simulationIn(ctx context.Context) *Simulation {
	sim, _ := ctx.Value(simulationKey{}).(*Simulation)
	return sim
}

// write runs a write inside the simulation. Its events are dropped. The statements
// that PostgreSQL would get with the commit are sent immediately.
func (sim *Simulation) write(ctx context.Context, f func(*Tx) error) error {
	t := sim.tx
	err := ctx.Err() // the writer of SQLite ignores the context
	if err == nil {
		err = f(t)
	}
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
	return sim.note(err)
}

// note records err if it is a conflict, after which the transaction must be
// retried, and returns err.
func (sim *Simulation) note(err error) error {
	if sim.tx.DB.Engine.Failure(err) == engine.Conflict {
		sim.conflict = err
	}
	return err
}

func (sim *Simulation) rows(
	ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error),
) error {
	return sim.note(sim.tx.Rows(ctx, query, args, f))
}
