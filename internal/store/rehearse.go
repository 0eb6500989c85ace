package store

import (
	"context"
	"errors"
	"slices"
)

// A Rehearsal is a transaction that changes are made in to see what they would do. It is always rolled back.
type Rehearsal struct {
	tx       *Tx
	conflict error // what asks for another try, whatever its caller has made of it
}

type rehearsalKey struct{}

// Rehearse runs f, again if the database asks for it. With the context that f gets, every read and every write of this
// database happens in one transaction, the writes as they would happen by themselves: with the checks of the database
// and with budgets. It is rolled back, whatever f returns: there is no event, no revision and nothing for a cache to
// read. What fills a cache must read with Outside.
//
// On SQLite nobody else can write until f returns, so f must be quick. On PostgreSQL f sees one state of the database.
// f must not use the context in several goroutines at once.
func (s *DB) Rehearse(ctx context.Context, f func(context.Context, *Rehearsal) error) error {
	err := s.Write(ctx, func(t *Tx) error {
		if err := t.beginRehearsal(ctx); err != nil {
			return err
		}
		r := &Rehearsal{tx: t}
		err := f(context.WithValue(ctx, rehearsalKey{}, r), r)
		if r.conflict != nil {
			return r.conflict
		}
		if err == nil {
			err = errRehearsed
		}
		return err
	})
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

// errRehearsed undoes a rehearsal.
var errRehearsed = errors.New("rehearsed")

func (t *Tx) beginRehearsal(ctx context.Context) error {
	if t.DB.Engine.Postgres { // before and after are compared, so nobody else's changes may come between them
		if _, err := t.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, `SAVEPOINT rehearsal`)
	return err
}

// Changes returns what replicas would have to read again.
func (r *Rehearsal) Changes() []GrantChange { return slices.Clone(r.tx.changes) }

// Undo takes back what was written. What is read from then on is as it was before.
func (r *Rehearsal) Undo(ctx context.Context) error {
	_, err := r.tx.Exec(ctx, `ROLLBACK TO rehearsal`)
	return err
}

// Outside returns a context whose reads and writes are no part of a rehearsal.
func Outside(ctx context.Context) context.Context {
	if rehearsalIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, rehearsalKey{}, (*Rehearsal)(nil))
}

// rehearsalIn returns the rehearsal that a context is for, or nil.
func rehearsalIn(ctx context.Context) *Rehearsal {
	r, _ := ctx.Value(rehearsalKey{}).(*Rehearsal)
	return r
}

// write runs a write of a rehearsal. Its events are dropped; what PostgreSQL gets with a commit is sent now.
func (r *Rehearsal) write(ctx context.Context, f func(*Tx) error) error {
	t := r.tx
	err := ctx.Err() // SQLite does not look
	if err == nil {
		err = f(t)
	}
	if err == nil {
		err = t.keepBudgets(ctx)
	}
	t.events = nil
	if on, ok := t.on.(*postgresTx); ok && err == nil {
		if all := t.closing(); len(all) > 0 {
			err = on.send(ctx, all)
		}
	}
	t.queued, t.increments = nil, nil
	return r.note(err)
}

// note records that the database asks for another try.
func (r *Rehearsal) note(err error) error {
	if r.tx.DB.Engine.failure(err) == conflict {
		r.conflict = err
	}
	return err
}

func (r *Rehearsal) rows(ctx context.Context, query string, args []any, f func(Scanner) (enough bool, err error)) error {
	return r.note(r.tx.Rows(ctx, query, args, f))
}
