package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// A Whole holds all of something that there is little of and that is needed often, such as the rules that every pull has
// to know. It may be used only until the revision moves. Most moves change nothing of it, and so it keeps what it had, with
// its version.
type Whole[T any] struct {
	db   *DB
	row  int64 // of the revision, which counts the changes of it
	read func(context.Context) (*T, error)

	current atomic.Pointer[T] // nil if it may be outdated

	mu      sync.Mutex
	last    *edition[T]
	cleared uint64 // how often
}

// An edition is all of it at one time.
type edition[T any] struct {
	history, version int64
	all              *T
}

// NewWhole returns what read reads, which must not be changed afterwards. row is the row of the revision that counts its
// changes.
func NewWhole[T any](db *DB, row int64, read func(context.Context) (*T, error)) *Whole[T] {
	w := &Whole[T]{db: db, row: row, read: read}
	db.OnRevision(w.clear)
	return w
}

func (w *Whole[T]) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleared++
	w.current.Store(nil)
}

// All returns all of it, from memory unless it may have changed: the same as before if it has not.
func (w *Whole[T]) All(ctx context.Context) (*T, error) {
	if w.db.Current() { // before the memory is asked: afterwards it may be outdated
		if all := w.current.Load(); all != nil {
			return all, nil
		}
	}
	w.mu.Lock()
	last, cleared := w.last, w.cleared
	w.mu.Unlock()
	history := w.db.History()
	var version int64
	if err := w.db.Row(ctx, `SELECT rev FROM revision WHERE id = $1`, []any{w.row}, &version); err != nil {
		return nil, fmt.Errorf("read the version of %T: %w", *new(T), err)
	}
	if last == nil || last.version != version || last.history != history {
		all, err := w.read(ctx)
		if err != nil {
			return nil, err
		}
		last = &edition[T]{history, version, all}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if cleared == w.cleared {
		w.last = last
		w.current.Store(last.all)
	}
	return last.all, nil
}
