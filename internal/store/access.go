package store

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/store/access"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
)

// keepAccess returns an error if the access of the request no longer exists. The access may also end between this
// call and the commit. On PostgreSQL the statements of accessStatements prevent that. On SQLite no other transaction
// can run until the commit, so it is enough to look for changes since the decision.
func (t *Tx) keepAccess(ctx context.Context) error {
	a := access.From(ctx)
	if a == nil {
		return nil
	}
	basis, err := a.Recheck()
	if err != nil {
		return err
	}
	if t.DB.Engine.Postgres {
		t.basis = &basis
		return nil
	}
	return t.findChange(ctx, basis)
}

// hasAccess returns an error if the access of the request ended before the transaction began. It serves transactions
// that are rolled back: they have no commit until which the access must exist.
func (t *Tx) hasAccess(ctx context.Context) error {
	a := access.From(ctx)
	if a == nil {
		return nil
	}
	basis, err := a.Recheck()
	if err != nil {
		return err
	}
	return t.findChange(ctx, basis)
}

// findChange returns access.ErrChanged if something on which a decision depends has changed since the decision.
func (t *Tx) findChange(ctx context.Context, basis access.Basis) error {
	var newest int64
	err := t.Row(ctx, replica.RevisionQuery, nil, &newest)
	if err != nil || newest == basis.Revision {
		return err
	}
	changed, next := false, basis.Revision+1
	err = t.Rows(ctx, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`,
		[]any{basis.Revision}, func(row Scanner) (bool, error) {
			var c GrantChange
			err := row.Scan(&c.Revision, &c.Identity, &c.Role)
			changed = c.Revision != next || // the changes in between were deleted
				c.Identity != "" && slices.Contains(basis.Subjects, c.Identity) ||
				c.Role != "" && slices.Contains(basis.Roles, c.Role)
			next++
			return changed, err
		})
	if err == nil && changed {
		err = access.ErrChanged
	}
	return err
}

// accessStatements returns the statements that keep the access of the request until the commit on PostgreSQL.
func (t *Tx) accessStatements() []engine.Statement {
	c := access.Commit{
		Basis: t.basis, Last: math.MaxInt64, Row: int64(RevisionGrants), Kept: changesKept - changesPruned,
	}
	if t.revision > 0 { // not in a simulation, which changes nothing
		c.Last = t.revision - int64(len(t.changes))
		for _, change := range t.changes {
			if name := cmp.Or(change.Identity, change.Role); name != "" {
				c.Changed = append(c.Changed, name)
			}
		}
	}
	return c.Statements()
}
