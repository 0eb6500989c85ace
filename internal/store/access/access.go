// Package access connects a write to the access of the request that makes it. A write is committed only if the access
// still exists at the commit. docs/decisions/0017-requests-in-flight.md explains the design.
package access

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// An Access is the access that a request relies on.
type Access interface {
	// Recheck decides again, from memory, whether the request is allowed. It returns what the decision depends on, or
	// an error if the request is no longer allowed. It returns ErrChanged if the database has another history than the
	// memory. It does not wait, so it can be called inside a transaction.
	Recheck() (Basis, error)

	// EnsureCurrent makes sure that Recheck considers every change that has returned to its caller, on any replica.
	EnsureCurrent(ctx context.Context) error

	// Refresh makes sure that Recheck considers every committed change.
	Refresh(ctx context.Context) error
}

// A Basis is what a decision about access depends on.
type Basis struct {
	Revision int64          // the decision considered all changes up to this revision
	Subjects []resource.UID // identities, sessions and providers whose changes can end the access
	Roles    []resource.UID // roles whose changes can end the access
	End      time.Time      // first end of a grant, by the clock of the database; zero if no grant ends
}

// Until makes the decision depend on a grant that ends. The zero time means that the grant does not end.
func (b *Basis) Until(end time.Time) {
	if !end.IsZero() && (b.End.IsZero() || end.Before(b.End)) {
		b.End = end
	}
}

type key struct{}

// With returns a context for a request that relies on an access.
func With(ctx context.Context, a Access) context.Context { return context.WithValue(ctx, key{}, a) }

// Without returns a context for work that the server does for itself or for several callers, even if one caller has
// started it. Such work does not end with the access of that caller.
func Without(ctx context.Context) context.Context {
	if From(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, nil)
}

// From returns the access that the request of a context relies on, or nil.
func From(ctx context.Context) Access {
	a, _ := ctx.Value(key{}).(Access)
	return a
}

// Recheck returns an error if the request of a context is no longer allowed. A request that takes long, such as a
// stream, calls it for each part that it receives or sends.
func Recheck(ctx context.Context) error {
	a := From(ctx)
	if a == nil {
		return nil
	}
	for {
		if err := a.EnsureCurrent(ctx); err != nil {
			return err
		}
		if _, err := a.Recheck(); !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// ErrChanged is the error of a transaction if something has changed on which the access depends. On PostgreSQL a
// raised error has the same meaning: see Changed.
var ErrChanged = errors.New("the access of the caller has changed")

// Changed reports whether a transaction failed because something has changed on which the access of its request
// depends. Then the caller decides about the access again.
func Changed(ctx context.Context, err error) bool {
	return From(ctx) != nil && (errors.Is(err, ErrChanged) || engine.IsRaised(err))
}

// A Commit is a transaction on PostgreSQL that is about to be committed.
type Commit struct {
	Basis   *Basis         // what the access of the request depends on; nil if the transaction relies on none
	Changed []resource.UID // identities, sessions, providers and roles whose access the transaction changes
	Last    int64          // newest revision that is not one of this transaction's own
	Row     int64          // row of the table revision that counts the changes
	Kept    int64          // number of changes that are not deleted yet
}

// Statements returns the statements that keep the access of a request until the commit. They must be the last
// statements of the transaction: then a transaction that holds the locks waits for nothing.
//
// The first statement locks the names on which the access depends, and the names whose access this transaction
// changes. The second statement makes the transaction fail if one of the names has changed since the decision. It
// sees the changes of every transaction that had the lock before, because on PostgreSQL each statement sees everything
// that was committed before the statement began.
func (c Commit) Statements() []engine.Statement {
	keys, exclusive := c.locks()
	if len(keys) == 0 {
		return nil
	}
	statements := []engine.Statement{{Text: `SELECT CASE WHEN x THEN pg_advisory_xact_lock($1, k)
		ELSE pg_advisory_xact_lock_shared($1, k) END FROM unnest($2::integer[], $3::boolean[]) AS u (k, x)`,
		Args: []any{lockClass, keys, exclusive}}}
	if c.Basis == nil {
		return statements
	}
	end := int64(math.MaxInt64)
	if !c.Basis.End.IsZero() {
		end = c.Basis.End.UnixMilli()
	}
	return append(statements, engine.Statement{Text: `SELECT ` + engine.RaiseIf(`EXISTS (SELECT 1 FROM grant_changes
		WHERE rev > $1 AND rev <= $2 AND (identity = ANY ($3::text[]) OR role = ANY ($4::text[])))
		OR (SELECT rev FROM revision WHERE id = $5) > $1 + $6 OR `+engine.Postgres.Clock+` >= $7`),
		Args: []any{c.Basis.Revision, c.Last, texts(c.Basis.Subjects), texts(c.Basis.Roles), c.Row, c.Kept, end}})
}

const (
	lockClass = 17  // first number of the advisory locks; no other lock of this program has two numbers
	lockCount = 256 // number of locks; names share them, because PostgreSQL has room for only a few thousand
)

// locks returns the numbers of the locks that the transaction needs, and which of them are exclusive: those for
// changes. The numbers are sorted, so that transactions do not wait for each other in a circle.
func (c Commit) locks() (keys []int32, exclusive []bool) {
	locks := map[int32]bool{}
	if c.Basis != nil {
		for _, name := range slices.Concat(c.Basis.Subjects, c.Basis.Roles) {
			locks[lockOf(name)] = false
		}
	}
	for _, name := range c.Changed {
		locks[lockOf(name)] = true
	}
	keys = slices.Sorted(maps.Keys(locks))
	for _, k := range keys {
		exclusive = append(exclusive, locks[k])
	}
	return keys, exclusive
}

// lockOf returns the number of the lock for an identity, a session, a provider or a role.
func lockOf(name resource.UID) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return int32(h.Sum32() % lockCount)
}

// texts returns names as the strings that the driver expects.
func texts(names []resource.UID) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return list
}
